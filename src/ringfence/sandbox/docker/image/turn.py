"""One build at a time: two of the same image would be twice the work, and one of the two without a name."""

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, next_step
from ringfence.sandbox.docker.image.transcript import Tell

_POLL_S = 0.25


@asynccontextmanager
async def our_turn(tell: Tell) -> AsyncIterator[None]:
    """Wait for other builds of this user to end, and hold further ones up.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    path = state_dir() / "locks" / "images.lock"
    try:
        make_private_dir(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        step = next_step(exc, is_state=True)
        raise InfrastructureFault(f"could not open {str(path)!r}: {exc.strerror}; {step}") from exc
    try:
        is_told = False
        while not _take(lock):
            if not is_told:
                tell("waiting for another build of images to end")
                is_told = True
            await anyio.sleep(_POLL_S)
        yield
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
