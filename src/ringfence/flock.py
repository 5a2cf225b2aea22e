"""The one way of taking a lock on an open file without waiting. The kernel releases it when its holder dies, however."""

import errno
import fcntl

from ringfence.errors import InfrastructureFault


def try_lock(fd: int, kind: int, *, what: str) -> bool:
    """Take a lock; whether it was free.

    Args:
        fd: The file.
        kind: `fcntl.LOCK_EX` or `fcntl.LOCK_SH`.
        what: What is locked, for the error.

    Raises:
        InfrastructureFault: The file system has no locks.
    """
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise InfrastructureFault(f"could not lock {what}: {exc.strerror}") from exc
    return True
