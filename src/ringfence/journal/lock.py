"""Who holds a run: an exclusive `flock` on the file `lock` in its directory.

The kernel releases it when the holder dies, however it dies.
"""

import fcntl
import os
import time
from pathlib import Path

from ringfence.errors import InfrastructureFault, RecordError, next_step
from ringfence.flock import try_lock

_PATIENCE_S = 0.5
_STEP_S = 0.005


class RunLock:
    """The lock of one run, held from `acquire` to `release`."""

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
        path = run_dir / "lock"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise InfrastructureFault(
                f"could not open {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
            ) from exc
        deadline = time.monotonic() + _PATIENCE_S
        while not try_lock(fd, fcntl.LOCK_EX, what="a run"):
            if time.monotonic() >= deadline:
                os.close(fd)
                raise RecordError(
                    f"run {run_dir.name!r} is held by another process; wait for it, or stop it, and try again"
                )
            time.sleep(_STEP_S)
        return cls(fd)

    def release(self) -> None:
        """Let go; harmless when done twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def is_alive(run_dir: Path) -> bool:
    """Whether a living process holds the run in `run_dir`."""
    try:
        fd = os.open(run_dir / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as exc:
        raise InfrastructureFault(f"could not open {str(run_dir / 'lock')!r}: {exc.strerror}") from exc
    try:
        return not try_lock(fd, fcntl.LOCK_SH, what="a run")
    finally:
        os.close(fd)
