"""Whatever dies around a standing sandbox: nothing lives on unowned, and who comes next is told."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.supervisor.conftest import children_of, until

from ringfence.errors import InfrastructureFault, SandboxDied
from ringfence.events import CommandEnded, JobEnded
from ringfence.job.standing_sandbox import remove_dead
from ringfence.journal import read, run_dir
from ringfence.sandbox.supervisor.client import attach, end_sandbox, read_living_state
from ringfence.sandbox.supervisor.directory import SandboxDirectory, standing_directory, standing_root

Standing = Callable[..., Awaitable[SandboxDirectory]]
pytestmark = [pytest.mark.anyio, pytest.mark.slow]
COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]


def start(*words: str | Path) -> "subprocess.Popen[bytes]":
    """Start the command in a process of its own."""
    return subprocess.Popen([*COMMAND, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end_of(*words: str | Path, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end."""
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


def open_files_of(pid: int) -> list[str]:
    """What a process has open."""
    return [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]


def inside_of(sandbox_id: str) -> list[int]:
    """Host pids of all processes that carry a sandbox's name in their environment: everything run in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"RINGFENCE={sandbox_id}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


async def test_a_supervisor_that_is_killed_leaves_no_process(standing: Standing):
    """A killed supervisor leaves no process inside, and a client that waits for a command gets `SandboxDied`."""
    directory = await standing()
    state = read_living_state(directory)

    async def use() -> None:
        async with attach(directory) as sandbox, sandbox.spawn(["sleep", "1000"]) as process:
            await until(lambda: bool(inside_of(state.sandbox_id)))
            os.kill(state.pid, signal.SIGKILL)
            await process.wait()

    with pytest.raises(SandboxDied):
        await use()
    await until(lambda: not inside_of(state.sandbox_id))
    assert not directory.is_alive()


async def test_the_command_of_a_killed_client_ends(standing: Standing, workspace: Path):
    """The command of a killed client is killed and its end recorded; the sandbox goes on."""
    directory = await standing()
    state = read_living_state(directory)
    client = start("sandbox", "exec", directory.name, "sh", "-c", "echo > started; exec sleep 1000")
    await until((workspace / "started").exists)
    client.kill()
    client.communicate()
    await until(lambda: not inside_of(state.sandbox_id))
    async with attach(directory) as sandbox:
        assert (await sandbox.run(["true"])).ok
    assert await end_sandbox(directory)
    assert state.run_id is not None
    ends = [one.event for one in read(run_dir(state.run_id)) if isinstance(one.event, CommandEnded)]
    assert [(end.argv[0], end.ended_by) for end in ends] == [("sh", "cancel"), ("true", "exit")]


async def test_a_killed_creator_leaves_no_sandbox(workspace: Path):
    """If `sandbox create` is killed before it reports the sandbox, the sandbox ends: nobody would ever remove it."""
    creator = start("sandbox", "create", "two", "-C", workspace, "--setup", "echo > started; sleep 1000")
    await until((workspace / "started").exists)
    directory = standing_directory("two")
    assert directory.is_alive()
    creator.kill()
    creator.communicate()
    await until(lambda: not directory.path.exists())


async def test_the_sandbox_outlives_its_creator(workspace: Path):
    """A standing sandbox has a session of its own and keeps no terminal of its creator's open."""
    made = end_of("sandbox", "create", "three", "-C", workspace)
    directory = standing_directory("three")
    state = read_living_state(directory)
    assert made.stdout == b"three\n"
    assert os.getsid(state.pid) != os.getsid(0)
    assert not [name for name in open_files_of(state.pid) if name.startswith(("/dev/pts", "/dev/tty"))]
    assert await end_sandbox(directory)


async def test_a_guest_that_dies_ends_its_supervisor(standing: Standing):
    """If the guest dies, the supervisor ends, and state and record say why."""
    directory = await standing()
    state = read_living_state(directory)

    async def use() -> None:
        async with attach(directory) as sandbox:
            for pid in children_of(state.pid):
                os.kill(pid, signal.SIGKILL)
            await sandbox.run(["sleep", "1000"])

    with pytest.raises(SandboxDied, match="SIGKILL"):
        await use()
    await until(lambda: not directory.is_alive())
    left = directory.read_state()
    assert left is not None
    assert left.end is not None
    assert left.end[0] == "killed"
    assert state.run_id is not None
    ends = [one.event for one in read(run_dir(state.run_id)) if isinstance(one.event, JobEnded)]
    assert [end.state for end in ends] == ["infrastructure"]


async def test_a_stale_socket_is_no_obstacle(standing: Standing):
    """A socket that is left over from a power failure is replaced."""
    directory = standing_directory("one")
    directory.path.mkdir(parents=True, mode=0o700)
    await (await directory.listen()).aclose()
    (directory.path / "lock").touch()
    assert (directory.path / "socket").is_socket()
    async with attach(await standing()) as sandbox:
        assert (await sandbox.run(["true"])).ok


async def test_of_racing_creators_one_wins(workspace: Path):
    """Of several processes that create a sandbox of one name, one succeeds; the others report that the name is taken."""
    racers = [start("sandbox", "create", "raced", "-C", workspace, "--mode", "clone") for _ in range(3)]
    said = [racer.communicate(timeout=60) for racer in racers]
    codes = sorted(racer.returncode for racer in racers)
    assert codes == [0, 2, 2], said
    assert sum(b"already" in errors for _, errors in said) == 2
    assert await end_sandbox(standing_directory("raced"))


async def test_a_full_disk_refuses_a_sandbox_and_leaves_none(workspace: Path):
    """On a full disk `sandbox create` fails with exit code 75 and without a traceback, and leaves no sandbox."""

    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    ended = end_of("sandbox", "create", "full", "-C", workspace, preexec_fn=no_room)
    assert ended.returncode == 75, ended
    assert b"Traceback" not in ended.stderr
    assert not standing_directory("full").is_alive()


async def test_a_state_directory_that_cannot_be_written_is_named(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The error for a state directory that cannot be written names the variable to set."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(InfrastructureFault, match="RINGFENCE_STATE_DIR"):
        await standing()


async def test_two_state_directories_never_touch_each_other(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Sandboxes of the same name in two state directories are independent, also when dead ones are removed."""
    first = await standing(mode="clone")
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "other"))
    second = await standing(mode="clone")
    assert first.name == second.name
    assert first.path != second.path
    assert await end_sandbox(second)
    assert remove_dead() == []
    async with attach(first) as sandbox:
        assert (await sandbox.run(["true"])).ok
    assert await end_sandbox(first)


async def test_a_state_directory_of_any_length_will_do(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The path of the state directory may be longer than a socket's address (108 bytes, unix(7))."""
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(deep))
    directory = await standing()
    async with attach(directory) as sandbox:
        assert (await sandbox.run(["true"])).ok
    assert await end_sandbox(directory)


async def test_only_the_user_can_reach_the_socket(standing: Standing):
    """Other users can neither open the socket nor enter the directories above it."""
    directory = await standing()
    modes = [
        path.stat().st_mode & 0o777 for path in (directory.path / "socket", directory.path, standing_root())
    ]
    assert modes == [0o600, 0o700, 0o700]


async def test_a_wall_clock_that_jumped_changes_no_age(standing: Standing):
    """Ages are computed from the monotonic clock, not from dates in the state file."""
    directory = await standing()
    state_file = directory.path / "state.json"
    fields = json.loads(state_file.read_bytes())
    state_file.write_text(json.dumps({**fields, "created_at": "1999-01-01T00:00:00+00:00"}))
    state = read_living_state(directory)
    assert 0 <= time.monotonic() - state.started_s < 600
