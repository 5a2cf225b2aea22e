"""Which programs the host runs, and how they end."""

import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_after

from ringfence import process
from ringfence.errors import InfrastructureFault
from ringfence.process import host_program, run_process

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Held:
    """What a process holds open."""

    opening: str
    """Shell command that takes hold of it."""
    reader: int
    is_let_go: Callable[[], bool]


def test_a_program_is_the_systems_whatever_path_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An activated venv puts the workspace, and so what an agent wrote, on PATH."""
    planted = tmp_path / "git"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert not host_program("git").startswith(str(tmp_path))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a program that looks like the system's")
@pytest.mark.parametrize(
    ("folder", "file", "is_taken"), [(0o755, 0o755, True), (0o777, 0o755, False), (0o755, 0o757, False)]
)
def test_a_program_that_everybody_can_write_is_not_the_systems(
    folder: int, file: int, is_taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nor is one in a directory that everybody can write."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "tool").touch(0o700)
    (place / "tool").chmod(file)
    place.chmod(folder)
    monkeypatch.setattr(process, "_SYSTEM_PATH", (str(place),))
    if is_taken:
        assert host_program("tool") == str(place / "tool")
    else:
        with pytest.raises(InfrastructureFault, match="'tool' is not among the system's programs"):
            host_program("tool")


async def test_a_bare_name_is_not_looked_up_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where a program is named without its path."""
    planted = tmp_path / "only-on-path"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfrastructureFault, match="'only-on-path' is not among the system's programs"):
        await run_process(["only-on-path"])


async def test_input_and_output_pass_through():
    """With the exit code."""
    done = await run_process(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=b"x" * 300_000)
    assert (done.stdout, done.stderr, done.exit_code, done.ok) == (b"x" * 300_000, b"oops\n", 3, False)


async def test_output_beyond_the_limit_is_dropped():
    """The program goes on to its end, and the cut is told."""
    done = await run_process(["sh", "-c", "head -c 100000 /dev/zero; exit 0"], output_limit_bytes=1000)
    assert (len(done.stdout), done.truncated, done.ok) == (1000, True, True)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A pipe for a shell to open as descriptor 9, and whether anybody has it open still."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def is_let_go() -> bool:
        return bool(select.select([reader], [], [], 10)[0]) and os.read(reader, 1) == b""

    yield Held(f"exec 9>{pipe}; ", reader, is_let_go)
    os.close(reader)


@pytest.mark.parametrize(
    "script",
    slow_after(
        1,
        [
            pytest.param("trap '' TERM; sleep 100", id="it ignores the signal", marks=pytest.mark.slow),
            pytest.param("(trap '' TERM; sleep 100) & sleep 100", id="a child ignores the signal"),
            pytest.param("sleep 100 & exit 0", id="a child outlives it"),
        ],
    ),
)
async def test_a_deadline_ends_the_whole_group(held: Held, script: str):
    """Whoever is left of it."""
    done = await run_process(["sh", "-c", held.opening + script], timeout_s=0.3)
    assert (done.timed_out, done.ok, held.is_let_go()) == (True, False, True)


async def test_cancelling_ends_it(held: Held):
    """Nothing outlives the task that asked for it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_process, ["sh", "-c", f"{held.opening} echo >&9; exec sleep 100"])
        await anyio.wait_readable(held.reader)
        os.read(held.reader, 1)
        tasks.cancel_scope.cancel()
    assert held.is_let_go()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a program as another user")
@pytest.mark.parametrize("setpriv", ["there", "not there"])
async def test_a_program_of_another_user_has_nothing_of_root(setpriv: str, monkeypatch: pytest.MonkeyPatch):
    """It has that user and group, real, effective and saved, no further group, and no capability."""
    if setpriv == "not there":
        monkeypatch.setattr(process, "_setpriv", lambda: None)
    before = os.getgroups()
    os.setgroups([34567])
    try:
        result = await run_process(["cat", "/proc/self/status"], user=12345, group=23456)
    finally:
        os.setgroups(before)
    lines = dict(line.split(":", 1) for line in result.stdout.decode().splitlines())
    assert [lines[name].split() for name in ("Uid", "Gid", "Groups")] == [["12345"] * 4, ["23456"] * 4, []]
    assert {int(lines[name], 16) for name in ("CapEff", "CapPrm", "CapAmb")} == {0}
