"""The parts of a journal's writer: its file, its reserved disk space, its sync thread, and the lock of its run."""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringfence.errors import InfrastructureFault, RecordError, next_step
from ringfence.flock import try_lock
from ringfence.journal.layout import LOCK_NAME

_RESERVE_BYTES = 128 * 1024
_LOCK_TIMEOUT_S = 0.5
_LOCK_POLL_S = 0.005


class LineFile:
    """Appends lines to a file. A line that cannot be written completely is removed again.

    Args:
        path: The file.
        size: The length to which an existing file is cut; None: create the file, with mode 0600.
    """

    def __init__(self, path: Path, *, size: int | None = None) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(path, flags | (os.O_CREAT | os.O_EXCL if size is None else 0), 0o600)
            os.ftruncate(self.fd, size or 0)
        except FileExistsError as exc:
            raise RecordError(f"there is a journal already: {str(path)!r}; use a new run id") from exc
        except OSError as exc:
            raise InfrastructureFault(
                f"could not open the journal {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        self._size = size or 0
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Write `line`, or leave the file as it was.

        Raises:
            OSError: The line does not fit (disk full, quota, file size limit), or the disk failed.
        """
        if self._is_torn:
            raise OSError(errno.EIO, "a part of an earlier line could not be removed")
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError:
            self._remove_partial_line()
            raise
        self._size += len(line)

    def _remove_partial_line(self) -> None:
        try:
            os.ftruncate(self.fd, self._size)
        except OSError:
            self._is_torn = True  # `reopen` removes the torn line; until then no line may follow it

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class Reserve:
    """Disk space that is reserved for the last lines of a run, so that its end is recorded even on a full disk.

    Args:
        path: The file that occupies the space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self) -> None:
        """Reserve the space; do nothing if the disk is full already."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, _RESERVE_BYTES)
            finally:
                os.close(fd)

    def release(self) -> None:
        """Free the space. A second call does nothing."""
        with suppress(OSError):
            self._path.unlink()


class Syncer:
    """A thread that calls `flush` at most `delay_s` after `mark`, or at once for `wait`.

    Args:
        flush: Writes to the disk everything that was written to the file before the call. After it raised an OSError,
            it is not called again, and `wait` and `check` raise.
        delay_s: The longest delay between `mark` and `flush`.
    """

    def __init__(self, flush: Callable[[], None], *, delay_s: float = 1.0) -> None:
        self._flush = flush
        self._delay_s = delay_s
        self._changed = threading.Condition()
        self._marked = 0
        self._flushed = 0
        self._urgent = 0
        self._stopping = False
        self._is_delaying = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="journal-sync", daemon=True)
        self._thread.start()

    def mark(self, *, urgent: bool = False) -> None:
        """Note that the file was written; if `urgent`, flush it without delay."""
        with self._changed:
            self._marked += 1
            if urgent:
                self._urgent = self._marked
            # During a delay the thread needs no wake-up, and waking it would slow the caller down.
            if urgent or not self._is_delaying:
                self._changed.notify_all()

    def wait(self) -> None:
        """Block until everything that was marked is on the disk.

        Raises:
            InfrastructureFault: The disk failed.
        """
        with self._changed:
            goal = self._urgent = self._marked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushed >= goal or self._failure is not None)
        self.check()

    def check(self) -> None:
        """Raise an error if the disk has failed.

        Raises:
            InfrastructureFault: The disk failed; later lines may be lost on a power failure.
        """
        if self._failure is not None:
            raise InfrastructureFault(
                f"the journal could not be synced to the disk: {self._failure.strerror}; check the disk"
            ) from self._failure

    def stop(self) -> None:
        """Flush the remaining lines and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while self._wait_for_work():
            goal = self._marked
            try:
                self._flush()
            except OSError as exc:  # a second fsync may report success for pages that the first one lost
                with self._changed:
                    self._failure = exc
                    self._changed.notify_all()
                return
            with self._changed:
                self._flushed = goal
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """Wait for work; return False if there is none and the thread should stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._marked > self._flushed or self._stopping)
            self._is_delaying = True
            self._changed.wait_for(lambda: self._urgent > self._flushed or self._stopping, self._delay_s)
            self._is_delaying = False
            return self._marked > self._flushed


class RunLock:
    """The lock that the process of a run holds: an exclusive `flock` on a file in the run's directory.

    The kernel releases the lock when the process dies, whatever the cause.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, run_dir: Path) -> "RunLock":
        """Take the lock.

        `is_alive` holds the lock for some microseconds, so the attempt is repeated for half a second.

        Raises:
            RecordError: Another process holds the lock.
            InfrastructureFault: The file cannot be created.
        """
        path = run_dir / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not open {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while not try_lock(fd, fcntl.LOCK_EX, what="a run"):
            if time.monotonic() >= deadline:
                os.close(fd)
                raise RecordError(
                    f"run {run_dir.name!r} is held by another process; wait for it, or stop it, and try again"
                )
            time.sleep(_LOCK_POLL_S)
        return cls(fd)

    def release(self) -> None:
        """Empty and release the lock file: what it notes is about its holder. A second call does nothing."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def is_alive(run_dir: Path) -> bool:
    """Whether a living process holds the lock of the run in `run_dir`."""
    try:
        fd = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(run_dir / 'lock')!r}: {exc.strerror}") from exc
    try:
        return not try_lock(fd, fcntl.LOCK_SH, what="a run")
    finally:
        os.close(fd)
