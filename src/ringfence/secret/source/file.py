"""A secret in a file, and what is asked of such a file.

A file that others may write is refused: they could put a secret of theirs there, and read what is done with it.
One that others may read is used and told: what mounts secrets (container engines, systemd) often makes them so.
Links are followed, as such mounts are made of them; what counts is the file that was opened.
"""

import errno
import os
import stat
from pathlib import Path

import anyio.to_thread

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.value import LIMIT_BYTES, SecretValue, read_value


async def read_file(reference: SecretReference, where: str) -> SecretValue:
    """Read a file that holds the secret and nothing else. Raises as `read_source`."""
    assert reference.path is not None
    raw, warnings = await anyio.to_thread.run_sync(read_secret_file, reference.path, where)
    value = read_value(raw, where)
    return SecretValue(value.text, value.expires_at, value.beside, warnings=warnings)


def read_secret_file(path: Path, where: str) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a file that holds a secret, one more than allowed at most; and what to tell about it.

    Args:
        path: The file.
        where: For errors: what it is read for.

    Raises:
        AuthenticationFailed: It is none, is writable by others, or cannot be read.
    """
    try:
        # Without O_NONBLOCK a pipe that nobody writes to would hold us here.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            warnings = _check(os.fstat(descriptor), path, where)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read(LIMIT_BYTES + 1), warnings
        finally:
            os.close(descriptor)
    except OSError as exc:
        advice = (
            "write it there, or name another" if exc.errno == errno.ENOENT else "make it readable for you"
        )
        raise AuthenticationFailed(
            f"{where}: {str(path)!r} cannot be read: {exc.strerror}; {advice}"
        ) from exc


def _check(status: os.stat_result, path: Path, where: str) -> tuple[str, ...]:
    if not stat.S_ISREG(status.st_mode):
        raise AuthenticationFailed(
            f"{where}: {str(path)!r} is not a regular file; name one, or a command that prints the secret"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise AuthenticationFailed(
            f"{where}: others than you can write {str(path)!r}; make it yours alone (chown, chmod 600)"
        )
    if status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return (f"others than you can read {str(path)!r}, which holds a secret; chmod 600 it if you can",)
    return ()
