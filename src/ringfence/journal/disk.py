"""What a journal is written with: its file, space kept for its end, the thread that syncs it, the lock of its run."""

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
_LOCK_PATIENCE_S = 0.5
_LOCK_STEP_S = 0.005


class LineFile:
    """Appends lines with one `write` each; a line that does not fit is taken back.

    Args:
        path: The file; created with mode 0600 if `create`.
        create: Whether it must not exist yet (else it must).
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self.fd = os.open(path, flags | (os.O_CREAT | os.O_EXCL if create else 0), 0o600)
        except FileExistsError as exc:
            raise RecordError(f"there is a journal already: {str(path)!r}; take a new run id") from exc
        except OSError as exc:
            raise InfrastructureFault(
                f"could not open the journal {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        self._size = os.fstat(self.fd).st_size
        self._is_torn = False

    def append(self, line: bytes) -> None:
        """Write `line`, or leave the file as it was.

        Raises:
            OSError: It does not fit (disk full, quota, file size limit) or the disk failed.
        """
        if self._is_torn:
            raise OSError(errno.EIO, "an earlier line could not be taken back")
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError:
            self._take_back()
            raise
        self._size += len(line)

    def _take_back(self) -> None:
        try:
            os.ftruncate(self.fd, self._size)
        except OSError:
            self._is_torn = True  # reopening cuts it off; until then nothing may follow the torn line

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)


class Reserve:
    """Disk space kept for a run's last lines, so that a full disk does not keep its end from being recorded.

    Args:
        path: The file that holds the space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Set the space aside; on a disk that is full already there is none to take."""
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, _RESERVE_BYTES)
            finally:
                os.close(fd)

    def release(self) -> None:
        """Free the space; harmless when done twice."""
        with suppress(OSError):
            self._path.unlink()


class Syncer:
    """A thread that calls `flush` at most `delay_s` after `mark`, or at once for `wait`.

    Args:
        flush: Brings to the disk what was written before it was called. May raise OSError: then nothing
            more is promised, and `wait` and `check` raise.
        delay_s: How long a mark may wait.
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
        """Say that something was written; `urgent` does not wait for `delay_s`."""
        with self._changed:
            self._marked += 1
            if urgent:
                self._urgent = self._marked
            # While it lets a delay pass the thread need not know of more: waking takes time from who marks.
            if urgent or not self._is_delaying:
                self._changed.notify_all()

    def wait(self) -> None:
        """Block until all that was marked is on the disk.

        Raises:
            InfrastructureFault: The disk failed.
        """
        with self._changed:
            wanted = self._urgent = self._marked
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._flushed >= wanted or self._failure is not None)
        self.check()

    def check(self) -> None:
        """Raise if the disk has failed.

        Raises:
            InfrastructureFault: It has; what was written since may be lost on a power cut.
        """
        if self._failure is not None:
            raise InfrastructureFault(
                f"the journal could not be brought to the disk: {self._failure.strerror}; look at the disk"
            ) from self._failure

    def stop(self) -> None:
        """Flush what is left and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while self._next_round():
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

    def _next_round(self) -> bool:
        """Wait for work; False when there is none and there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._marked > self._flushed or self._stopping)
            self._is_delaying = True
            self._changed.wait_for(lambda: self._urgent > self._flushed or self._stopping, self._delay_s)
            self._is_delaying = False
            return self._marked > self._flushed


class RunLock:
    """Who writes a run: an exclusive `flock` on a file in its directory, held from `acquire` to `release`.

    The kernel releases it when the holder dies, however it dies.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def acquire(cls, run_dir: Path) -> "RunLock":
        """Take the lock.

        A probe by `is_alive` holds it for some microseconds; so it is tried for half a second.

        Raises:
            RecordError: Another process holds it.
            InfrastructureFault: The file cannot be made.
        """
        path = run_dir / LOCK_NAME
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not open {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not try_lock(fd, fcntl.LOCK_EX, what="a run"):
            if time.monotonic() >= deadline:
                os.close(fd)
                raise RecordError(
                    f"run {run_dir.name!r} is held by another process; wait for it, or stop it, and try again"
                )
            time.sleep(_LOCK_STEP_S)
        return cls(fd)

    def release(self) -> None:
        """Let go; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_alive(run_dir: Path) -> bool:
    """Whether a living process holds the run in `run_dir`."""
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
