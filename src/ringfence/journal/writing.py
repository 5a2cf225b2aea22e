"""The writer of a run's journal. An event is in the file before `append` returns: written before told."""

import functools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault, RecordError, next_step
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
from ringfence.journal.appending import LineFile, Reserve, Syncer
from ringfence.journal.blobs import BlobStore, pack
from ringfence.journal.files import digests
from ringfence.journal.heads import record_head
from ringfence.journal.keys import signing_key
from ringfence.journal.lock import RunLock
from ringfence.journal.record import (
    FORMAT,
    JOURNAL_NAME,
    Record,
    digest_of,
    encode_line,
    format_time,
)
from ringfence.journal.sealing import make_seal
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
        self._blobs = BlobStore(run_dir / "blobs")
        self._reserve = Reserve(run_dir / "reserve")
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

        Half a line at its end is cut off; `journal.repaired` records that.

        Raises:
            RecordError: It is sealed, damaged before its end, shorter than the index of heads knows, absent,
                or held by a living process.
            InfrastructureFault: It cannot be written.
        """
        path = run_dir / JOURNAL_NAME
        if not path.is_file():
            raise RecordError(f"there is no journal {str(path)!r}; `ringfence runs ls` lists the runs")
        lock = RunLock.acquire(run_dir)
        try:
            tail = tail_of(path)
            _cut(path, tail.size)
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
        """Enter the record's other files, sign the head as the last line, and enter it in the index of heads.

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
            if files:
                self._append(FilesRecorded(files=files), time)
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
            return digests(self.run_dir, session)
        except OSError as exc:
            raise InfrastructureFault(
                f"a file of the record {str(self.run_dir)!r} cannot be read: {exc.strerror}; {next_step(exc)}"
            ) from exc

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
        try:
            if isinstance(event, _LAST):
                self._reserve.give_back()
            line = encode_line(seq, time, prev=prev, event=event.name, data=pack(event, self._blobs.keep))
            self._file.append(line)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not write {event.name!r} to the journal {str(self.path)!r}: {exc.strerror}; "
                f"{next_step(exc, is_state=True)}"
            ) from exc
        except (TypeError, ValueError, RecursionError) as exc:
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
