"""The writer of a run's journal. An event is in the file before `append` returns: written before told."""

import functools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

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
from ringfence.journal.verification import Tail, tail_of

_DURABLE = (JobCreated, PolicyLoosened, JobEnded, JournalSealed)
"""`emit` returns only when these are on the disk; all others are within a second."""

_LAST = (JobEnded, FilesRecorded, JournalSealed)
"""Before these the reserve is given back, and the seal, a first key and the index find space in it too."""


class Journal:
    """An open journal. Use `create` or `reopen`; close it, or leave its `with` block, in every case.

    Safe to use from several threads. While it is open the run's lock is held.
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
        self._reserve.take()
        self._syncer = Syncer(self._flush)

    @classmethod
    def create(cls, run_dir: Path, run_id: str, *, enter: Callable[[], None] = lambda: None) -> Self:
        """Start the journal of a new run; `run_dir` is made if need be.

        Args:
            run_dir: The run's directory.
            run_id: The run's name.
            enter: Makes the run known to those who close what dead processes left. It is called once the run is held,
                so that nobody takes it for dead, and before there is a record, which would else lie there unknown.

        Raises:
            RecordError: There is one already, or another process holds the run.
            InfrastructureFault: It cannot be written.
        """
        try:
            lock = RunLock.acquire(make_private_dir(run_dir))
        except OSError as exc:
            raise InfrastructureFault(
                f"could not make {str(run_dir)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        try:
            enter()
            file = LineFile(run_dir / JOURNAL_NAME, create=True)
            journal = cls(run_dir, run_id, lock=lock, file=file, tail=Tail.empty())
        except BaseException:
            lock.release()
            raise
        return journal._opened(_opening(run_id))

    @classmethod
    def reopen(cls, run_dir: Path) -> Self:
        """Go on with the journal of a run whose writer died.

        Half a line at its end is cut off, which `journal.repaired` records; bodies that no line refers to are removed.

        Raises:
            RecordError: It is sealed, damaged before its end, shorter than the chain knows, absent,
                or held by a living process.
            InfrastructureFault: It cannot be written.
        """
        path = run_dir / JOURNAL_NAME
        if not path.is_file():
            raise RecordError(f"there is no journal {str(path)!r}; `ringfence runs ls` lists the runs")
        lock = RunLock.acquire(run_dir)
        try:
            tail, bodies = tail_of(path)
            _cut(path, tail.size)
            BlobStore(run_dir / BLOBS_NAME).prune(bodies)
            file = LineFile(path, create=False)
            journal = cls(run_dir, tail.run_id or run_dir.name, lock=lock, file=file, tail=tail)
        except BaseException:
            lock.release()
            raise
        repaired = JournalRepaired(dropped_bytes=tail.torn_bytes, dropped_sha256=tail.torn_sha256)
        if tail.next_seq == 0:
            return journal._opened(_opening(journal.run_id), repaired)
        return journal._opened(repaired)

    @property
    def head(self) -> str:
        """SHA-256 of the last line."""
        return self._tail.head

    def append(self, event: Event) -> Record | None:
        """Write an event; it is in the file, whole, when this returns.

        Returns:
            Its record; None for events that are not journaled.

        Raises:
            InfrastructureFault: It could not be written (the disk is full, say). The file ends with the event
                before.
            RecordError: The journal is sealed or closed.
        """
        if not event.journaled:
            return None
        with self._mutex:
            return self._append(event, datetime.now(UTC))

    async def emit(self, event: Event) -> None:
        """`append`; for `job.created`, `policy.loosened` and `job.ended` wait for the disk too.

        Raises:
            InfrastructureFault, RecordError: As `append`.
        """
        if self.append(event) is not None and isinstance(event, _DURABLE):
            await anyio.to_thread.run_sync(self._syncer.wait)

    def seal(self, *, session: bytes | None = None) -> Record:
        """List the other files, sign the head as the last line, and append it to the chain of the state directory.

        Blocks on the disk.

        Args:
            session: The session file that will be written once the journal is closed; None: there is none.

        Raises:
            InfrastructureFault: It could not be written, or there is no key and none can be made.
            RecordError: The journal is sealed or closed already, or the key is damaged.
        """
        self._reserve.give_back()
        key = signing_key()
        files = self._files(session)
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
        """Let go of the run. A journal that was not sealed stays open-ended; harmless when done twice.

        Raises:
            InfrastructureFault: The disk failed; the lock is released all the same.
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
            self._reserve.give_back()
            self._file.close()
            self._lock.release()

    async def finish(self, *, session: bytes | None = None) -> None:
        """`seal` and `close`, away from the event loop.

        Raises:
            InfrastructureFault, RecordError: As `seal`; the journal is closed all the same.
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

    def _files(self, session: bytes | None) -> dict[str, str]:
        try:
            files = digests(self.run_dir)
        except OSError as exc:
            raise InfrastructureFault(
                f"a file of the record {str(self.run_dir)!r} cannot be read: {exc.strerror}; {next_step(exc)}"
            ) from exc
        if session is not None:
            files[session_name(self.run_id)] = sha256(session).hexdigest()
        return files

    def _opened(self, *first: Event) -> Self:
        try:
            for event in first:
                self.append(event)
            _sync_directory(self.run_dir)
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
        line = self._written(event, seq=seq, time=format_time(time), prev=prev)
        digest = digest_of(line)
        self._tail = self._tail.after(digest, len(line))
        self._syncer.mark(urgent=isinstance(event, _DURABLE))
        return Record(seq=seq, time=time, prev=prev, event=event, digest=digest)

    def _written(self, event: Event, *, seq: int, time: str, prev: str) -> bytes:
        before = len(self._blobs.unsynced)
        try:
            if isinstance(event, _LAST):
                self._reserve.give_back()
            line = encode_line(seq, time, prev=prev, event=event.name, data=pack(event, self._blobs.keep))
            self._file.append(line)
        except OSError as exc:
            self._blobs.drop(before)
            raise InfrastructureFault(
                f"could not write {event.name!r} to the journal {str(self.path)!r}: {exc.strerror}; "
                f"{next_step(exc, is_state=True)}"
            ) from exc
        except (TypeError, ValueError, RecursionError) as exc:
            self._blobs.drop(before)
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
            bodies, self._blobs.unsynced = self._blobs.unsynced, []
        for path in bodies:
            _sync_file(path)
        if bodies:
            _sync_directory(self._blobs.directory)
        os.fsync(self._file.fd)


def mark_interrupted(path: Path) -> bool:
    """Close the record of a run whose process died: repair it, append `job.ended`, seal it.

    The session file is written too.

    Returns:
        False if the run needed none of it: it is alive, or has its end and its seal.

    Raises:
        RecordError: The journal is damaged, so nothing is added to it.
        InfrastructureFault: It could not be written.
    """
    if is_alive(path) or not (path / JOURNAL_NAME).is_file() or summarize(path).is_sealed:
        return False
    with Journal.reopen(path) as journal:
        end = _interruption(path)
        if end is not None:
            journal.append(end)
        session = export(path).encode()
        journal.seal(session=session)
    write_session(path, session)
    return True


def _interruption(path: Path) -> JobEnded | None:
    """The end that a journal lacks; None if it has one."""
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


def _opening(run_id: str) -> JournalOpened:
    return JournalOpened(run_id=run_id, format=FORMAT, version=_version())


@functools.cache
def _version() -> str:
    from importlib.metadata import version

    return version("ringfence")


def _cut(path: Path, size: int) -> None:
    try:
        os.truncate(path, size)
    except OSError as exc:
        raise InfrastructureFault(f"could not repair the journal {str(path)!r}: {exc.strerror}") from exc


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_directory(path: Path) -> None:
    _sync_file(path)
