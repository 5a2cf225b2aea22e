"""Writes the journal of a run. `append` returns after the event is in the file, so events are recorded before use."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from ringfence import __version__
from ringfence.config.paths import make_private_dir
from ringfence.errors import ExitCode, InfrastructureFault, RecordError, next_step
from ringfence.events import (
    Event,
    FilesRecorded,
    JobCreated,
    JobEnded,
    JournalOpened,
    JournalRepaired,
    JournalSealed,
    PolicyLoosened,
)
from ringfence.journal.blobs import BlobStore, pack
from ringfence.journal.chain import record_head
from ringfence.journal.disk import LineFile, Reserve, RunLock, Syncer, is_alive
from ringfence.journal.layout import BLOBS_NAME, JOURNAL_NAME, RESERVE_NAME, digests, session_name
from ringfence.journal.reader import read, summarize
from ringfence.journal.record import FORMAT, Record, digest_of, encode_line, format_time
from ringfence.journal.seal import make_seal, signing_key
from ringfence.journal.session import export, write_session
from ringfence.journal.verification import Tail, read_tail

_DURABLE = (JobCreated, PolicyLoosened, JobEnded, JournalSealed)
"""`emit` returns only when these events are on the disk. All others reach the disk within a second."""

_LAST = (JobEnded, FilesRecorded, JournalSealed)
"""The reserve is released before these events. Its space also suffices for the seal, a new key and the chain."""


class Journal:
    """An open journal. Construct it with `create` or `reopen`, and always close it, or use it in a `with` statement.

    It is safe to use from several threads. An open journal holds the run's lock.
    """

    def __init__(self, run_dir: Path, run_id: str, *, lock: RunLock, file: LineFile, tail: Tail) -> None:
        self.run_dir = run_dir
        self.run_id = run_id
        self.path = file.path
        self.is_sealed = False
        self._lock = lock
        self._file = file
        self._tail = tail
        self._recorded_seq = tail.next_seq - 1
        self._mutex = threading.Lock()
        self._blobs = BlobStore(run_dir / BLOBS_NAME)
        self._reserve = Reserve(run_dir / RESERVE_NAME)
        self._is_closed = False
        self._reserve.acquire()
        self._syncer = Syncer(self._flush)

    @classmethod
    def create(cls, run_dir: Path, run_id: str, *, on_locked: Callable[[], None] = lambda: None) -> Self:
        """Start the journal of a new run. `run_dir` is created if it does not exist.

        Args:
            run_dir: The run's directory.
            run_id: The run's name.
            on_locked: Registers the run with the commands that close the records of dead processes. It is called after
                the run's lock is taken, because a run without lock counts as dead, and before the journal exists,
                because a record that is not registered would never be closed.

        Raises:
            RecordError: The run has a journal already, or another process holds the run's lock.
            InfrastructureFault: The journal cannot be written.
        """
        try:
            make_private_dir(run_dir)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not make {str(run_dir)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        with _locked(run_dir) as lock:
            on_locked()
            file = LineFile(run_dir / JOURNAL_NAME)
            journal = cls(run_dir, run_id, lock=lock, file=file, tail=Tail.empty())
        return journal._start(_opening_event(run_id))

    @classmethod
    def reopen(cls, run_dir: Path) -> Self:
        """Continue the journal of a run whose writer died.

        An incomplete last line is removed and recorded as `journal.repaired`. Unreferenced blobs are removed, too.

        Raises:
            RecordError: The journal is absent, sealed, damaged before its end or shorter than the chain records, or a
                living process holds the run's lock.
            InfrastructureFault: The journal cannot be written.
        """
        path = run_dir / JOURNAL_NAME
        if not path.is_file():
            raise RecordError(f"there is no journal {str(path)!r}; `ringfence runs ls` lists the runs")
        with _locked(run_dir) as lock:
            tail, digests_of_blobs = read_tail(path)
            BlobStore(run_dir / BLOBS_NAME).prune(digests_of_blobs)
            file = LineFile(path, size=tail.size)
            journal = cls(run_dir, tail.run_id or run_dir.name, lock=lock, file=file, tail=tail)
        repaired = JournalRepaired(dropped_bytes=tail.torn_bytes, dropped_sha256=tail.torn_sha256)
        if tail.next_seq == 0:
            return journal._start(_opening_event(journal.run_id), repaired)
        return journal._start(repaired)

    @property
    def head(self) -> str:
        """SHA-256 of the last line."""
        return self._tail.head

    def append(self, event: Event) -> Record | None:
        """Write an event. The complete event is in the file when this method returns.

        Returns:
            The event's record; None for events that are not journaled.

        Raises:
            InfrastructureFault: The event could not be written, for example because the disk is full. The file then ends
                with the previous event.
            RecordError: The journal is sealed or closed.
        """
        if not event.journaled:
            return None
        with self._mutex:
            return self._append(event, datetime.now(UTC))

    async def emit(self, event: Event) -> None:
        """Append an event; for `job.created`, `policy.loosened` and `job.ended`, also wait for the disk.

        Raises:
            InfrastructureFault, RecordError: As `append`.
        """
        if self.append(event) is not None and isinstance(event, _DURABLE):
            await anyio.to_thread.run_sync(self._syncer.wait)

    def seal(self, *, session: bytes | None = None) -> Record:
        """Record the other files, write the seal as the last line, and append the head to the state directory's chain.

        This method blocks until the disk is written.

        Args:
            session: The content of the session file that will be written after the journal is closed, if any.

        Raises:
            InfrastructureFault: The seal could not be written, or a signing key could not be created.
            RecordError: The journal is sealed or closed already, or the key is damaged.
        """
        self._reserve.release()
        key = signing_key()
        files = self._digest_files(session)
        with self._mutex:
            time = datetime.now(UTC)
            self._append(FilesRecorded(files=files, is_complete=True), time)
            seal = make_seal(key, self.run_id, seq=self._tail.next_seq, time=time, head=self._tail.head)
            record = self._append(seal, time)
            self.is_sealed = True
        self._syncer.wait()
        self._record_head()
        return record

    def close(self) -> None:
        """Close the journal and release the run's lock. A second call does nothing.

        A journal that was not sealed stays open-ended.

        Raises:
            InfrastructureFault: The disk failed; the lock is released nevertheless.
        """
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._syncer.stop()
            self._syncer.check()
            self._record_head()
        finally:
            self._reserve.release()
            self._file.close()
            self._lock.release()

    async def finish(self, *, session: bytes | None = None) -> None:
        """Seal and close the journal in a worker thread.

        Raises:
            InfrastructureFault, RecordError: As `seal`; the journal is closed nevertheless.
        """
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._finish, session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finish(self, session: bytes | None) -> None:
        try:
            self.seal(session=session)
        finally:
            self.close()

    def _digest_files(self, session: bytes | None) -> dict[str, str]:
        try:
            files = digests(self.run_dir)
        except OSError as exc:
            raise InfrastructureFault(
                f"a file of the record {str(self.run_dir)!r} cannot be read: {exc.strerror}; {next_step(exc)}"
            ) from exc
        if session is not None:
            files[session_name(self.run_id)] = sha256(session).hexdigest()
        return files

    def _start(self, *events: Event) -> Self:
        """Append the first events of an opened journal; close the journal if that fails."""
        try:
            for event in events:
                self.append(event)
            _sync(self.run_dir)
        except BaseException:
            with suppress(InfrastructureFault):
                self.close()
            raise
        return self

    def _append(self, event: Event, time: datetime) -> Record:
        if self.is_sealed or self._is_closed:
            state = "sealed" if self.is_sealed else "closed"
            raise RecordError(
                f"the journal of run {self.run_id!r} is {state}; {event.name!r} cannot be added"
            )
        self._syncer.check()
        seq, prev = self._tail.next_seq, self._tail.head
        line = self._write_line(event, seq=seq, time=format_time(time), prev=prev)
        digest = digest_of(line)
        self._tail = self._tail.after(digest, len(line))
        self._syncer.mark(urgent=isinstance(event, _DURABLE))
        return Record(seq=seq, time=time, prev=prev, event=event, digest=digest)

    def _write_line(self, event: Event, *, seq: int, time: str, prev: str) -> bytes:
        blobs_before = len(self._blobs.unsynced)
        try:
            if isinstance(event, _LAST):
                self._reserve.release()
            line = encode_line(seq, time, prev=prev, event=event.name, data=pack(event, self._blobs.store))
            self._file.append(line)
        except OSError as exc:
            self._blobs.discard_after(blobs_before)
            raise InfrastructureFault(
                f"could not write {event.name!r} to the journal {str(self.path)!r}: {exc.strerror}; "
                f"{next_step(exc, is_state=True)}"
            ) from exc
        except (TypeError, ValueError, RecursionError) as exc:
            self._blobs.discard_after(blobs_before)
            raise InfrastructureFault(
                f"{event.name!r} cannot be recorded, so it must not happen: {exc}; report this as a bug"
            ) from exc
        return line

    def _record_head(self) -> None:
        seq = self._tail.next_seq - 1
        if seq > self._recorded_seq:
            record_head(self.run_id, seq=seq, head=self._tail.head)
            self._recorded_seq = seq

    def _flush(self) -> None:
        with self._mutex:
            blobs, self._blobs.unsynced = self._blobs.unsynced, []
        for path in blobs:
            _sync(path)
        if blobs:
            _sync(self._blobs.directory)
        os.fsync(self._file.fd)


def mark_interrupted(path: Path) -> bool:
    """Close the record of a run whose process died: repair it, append `job.ended`, seal it.

    The session file is written, too.

    Returns:
        False if nothing was to do: the run is alive or has no journal, or its journal is sealed.

    Raises:
        RecordError: The journal is damaged, so nothing is added to it.
        InfrastructureFault: The record could not be written.
    """
    if is_alive(path) or not (path / JOURNAL_NAME).is_file() or summarize(path).is_sealed:
        return False
    with Journal.reopen(path) as journal:
        end = _interruption_event(path)
        if end is not None:
            journal.append(end)
        session = export(path).encode()
        journal.seal(session=session)
    write_session(path, session)
    return True


def _interruption_event(path: Path) -> JobEnded | None:
    """Return the missing `job.ended` of a journal; None if the journal has one."""
    times: list[datetime] = []
    for record in read(path):
        if isinstance(record.event, JobEnded):
            return None
        times = [*times[:1], record.time]
    return JobEnded(
        state="interrupted",
        exit_code=ExitCode.INFRASTRUCTURE,
        reason="its process died before the run ended",
        duration_s=(times[-1] - times[0]).total_seconds(),
    )


def _opening_event(run_id: str) -> JournalOpened:
    return JournalOpened(run_id=run_id, format=FORMAT, version=__version__)


@contextmanager
def _locked(run_dir: Path) -> Iterator[RunLock]:
    """Take the lock of a run; release it again if the context is left with an error."""
    lock = RunLock.acquire(run_dir)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


def _sync(path: Path) -> None:
    """Write a file or a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
