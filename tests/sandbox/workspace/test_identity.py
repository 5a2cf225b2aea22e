"""Threads of a user act as that user, and as nobody else."""

import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from ringfence.sandbox.workspace.open import RESERVED_ID
from ringfence.sandbox.workspace.run_as import Actor

US = Actor(RESERVED_ID, RESERVED_ID)
"""Somebody who is not root."""

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as others"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can get to, and write in."""
    with tempfile.TemporaryDirectory(prefix="ringfence-identity-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def owner_of_new(path: Path) -> tuple[int, int]:
    """Whose a file is that is made now."""
    path.touch()
    status = path.stat()
    return status.st_uid, status.st_gid


async def test_every_call_acts_as_the_user(place: Path):
    """However many there are at once: what is made is the user's."""
    owners = list[tuple[int, int]]()

    async def make(number: int) -> None:
        owners.append(await US.call(lambda: owner_of_new(place / str(number))))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(make, number)
    assert owners == [(RESERVED_ID, RESERVED_ID)] * 20


async def test_the_caller_stays_who_it_is(place: Path):
    """What the caller makes meanwhile and afterwards is the caller's."""
    others = await US.call(lambda: US.call_sync(threading.get_ident))
    assert others != threading.get_ident()
    assert owner_of_new(place / "ours") == (0, os.getegid())


async def test_what_root_alone_may_read_is_not_read(place: Path):
    """Root's power over files is put down in such a thread."""
    secret = place / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    with pytest.raises(PermissionError):
        await US.call(secret.read_text)


async def test_a_change_of_the_whole_process_is_not_kept(place: Path):
    """Where the process takes an identity anew, which reaches all of its threads, a thread takes its own again."""
    await US.call(lambda: None)
    os.seteuid(0)
    assert await US.call(lambda: owner_of_new(place / "made")) == (RESERVED_ID, RESERVED_ID)


async def test_a_caller_that_is_cancelled_waits_for_what_it_began():
    """What acts on files is not left to itself."""
    is_begun, may_end, is_done = threading.Event(), threading.Event(), list[bool]()

    def work() -> None:
        is_begun.set()
        may_end.wait(30)
        is_done.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(US.call, work)
        await anyio.to_thread.run_sync(is_begun.wait, 30)
        tasks.cancel_scope.cancel()
        may_end.set()
    assert is_done == [True]
