"""A sandbox's life: what is left when it ends well, in the middle, or by force."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from tests.sandbox.conftest import Opener

from ringfence.errors import PolicyRefused, SandboxDied, SandboxStartFailed
from ringfence.sandbox import Mount, Sandbox, SandboxSpec
from ringfence.sandbox.bubblewrap import backend
from ringfence.sandbox.bubblewrap.bwrap import choose_bwrap
from ringfence.sandbox.cgroup import leftovers, remove_leftovers

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0
BACKENDS = pytest.mark.parametrize("name", ["bubblewrap", "host"])
HOLDER = """
import sys
import anyio
from pathlib import Path
from ringfence.sandbox import Sandbox, SandboxSpec

async def main():
    spec = SandboxSpec(backend=sys.argv[1], workspace=Path(sys.argv[2]))
    async with Sandbox.start(spec, sandbox_id=sys.argv[3]) as sandbox:
        line = f"setsid sleep {sys.argv[4]} & sleep {sys.argv[4]} & echo up; wait"
        async with sandbox.spawn(["sh", "-c", line]) as process:
            print(await anext(process.stdout), flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""


def open_files() -> dict[str, str]:
    """Our descriptors, but for those that a finished thread or loop may close at any time."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found[entry.name] = str(entry.readlink())
    return found


def processes(mark: str) -> list[int]:
    """Processes of the machine with this word among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def child_of(pid: int) -> int:
    """The only child of a process."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


async def gone(mark: str) -> bool:
    """Whether no such process is left, soon."""
    with anyio.move_on_after(PATIENCE_S):
        while processes(mark):  # noqa: ASYNC110 -- nobody tells when a process of somebody else's is gone
            await anyio.sleep(0.01)
    return not processes(mark)


@BACKENDS
async def test_nothing_is_left(name: str, opener: Callable[[str], Opener]) -> None:
    """Opening and closing leaks no descriptor, no process and no control group."""
    async with opener(name)() as sandbox:
        await sandbox.run(["true"])
    before, ids, mark = open_files(), [], f"68.{secrets.randbelow(10**9):09}"
    for _ in range(5):
        async with opener(name)() as sandbox:
            ids.append(sandbox.id)
            await sandbox.run(["sh", "-c", f"sleep {mark} &"])
    assert set(open_files().values()) <= set(before.values())
    assert len(open_files()) <= len(before)
    assert await gone(mark)
    assert not set(ids) & set(leftovers())


@pytest.mark.slow
async def test_nothing_is_left_of_fifty(opener: Callable[[str], Opener]) -> None:
    """The same for fifty, several open at once."""
    async with opener("bubblewrap")() as sandbox:
        await sandbox.run(["true"])
    before, ids = len(open_files()), []
    limiter = anyio.CapacityLimiter(5)

    async def one() -> None:
        async with limiter, opener("bubblewrap")() as sandbox:
            ids.append(sandbox.id)
            assert (await sandbox.run(["true"])).ok

    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(one)
    assert (
        len(open_files()) <= before + 8
    )  # threads that wait for the next blocking call keep none; the loop may
    assert len(set(ids)) == 50
    assert not set(ids) & set(leftovers())


@pytest.mark.slow
@BACKENDS
async def test_killed_holder(name: str, workspace: Path) -> None:
    """`kill -9` of a sandbox's holder leaves no process, and what it leaves of groups is removed by name."""
    # Of this test alone: another run of it, at the same time or broken off, is none of ours.
    mark, sandbox_id = f"69.{secrets.randbelow(10**9):09}", f"killed{secrets.token_hex(3)}"
    holder = subprocess.Popen(  # noqa: ASYNC220 -- nothing else runs on this loop
        [sys.executable, "-c", HOLDER, name, str(workspace), sandbox_id, mark],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert holder.stdout is not None
    try:
        assert "up" in holder.stdout.readline().decode()
        with anyio.fail_after(PATIENCE_S):
            while len(processes(mark)) < 3:  # noqa: ASYNC110 -- the holder, and both that it started
                await anyio.sleep(0.01)
    finally:
        holder.kill()
        holder.communicate()
    assert await gone(mark)
    await anyio.to_thread.run_sync(remove_leftovers, frozenset({sandbox_id}))
    assert sandbox_id not in leftovers()


async def test_a_second_kill_waits_for_the_first(opener: Callable[[str], Opener]) -> None:
    """Whoever kills a sandbox that is being killed goes on when everything inside is dead, not before."""
    async with opener("bubblewrap")() as sandbox, anyio.create_task_group() as tasks:
        codes: list[int | None] = []

        async def kill() -> None:
            await sandbox.session.fence.kill()
            codes.append(sandbox.session.fence.process.returncode)  # type: ignore[attr-defined]

        tasks.start_soon(kill)
        tasks.start_soon(kill)
    assert len(codes) == 2
    assert None not in codes


async def test_bwrap_killed(opener: Callable[[str], Opener]) -> None:
    """A fence that is killed from outside is told as killed, by what, to who waits."""
    async with opener("bubblewrap")() as sandbox, sandbox.spawn(["sleep", "70.5"]) as process:
        await sandbox.run(["true"])
        sandbox.session.fence.process.kill()  # type: ignore[attr-defined]
        with pytest.raises(SandboxDied, match="SIGKILL") as info:
            await process.wait()
    assert info.value.reason == "killed"
    assert await gone("70.5")


async def test_guest_killed(opener: Callable[[str], Opener]) -> None:
    """A guest that is killed ends its sandbox, and everything inside with it."""
    async with opener("bubblewrap")() as sandbox, sandbox.spawn(["sleep", "71.5"]) as process:
        await sandbox.run(["true"])
        top = sandbox.session.fence.process.pid  # type: ignore[attr-defined]
        os.kill(child_of(top), signal.SIGKILL)
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied):
            await process.wait()
        with pytest.raises(SandboxDied):
            await sandbox.run(["true"])
    assert await gone("71.5")


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")])
async def test_host_guest_killed(opener: Callable[[str], Opener], number: int, name: str) -> None:
    """A guest on the bare host that is killed is a dead sandbox, and said to be killed, by what."""
    async with opener("host")() as sandbox:
        sandbox.session.fence.process.send_signal(number)  # type: ignore[attr-defined]
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied, match=name) as info:
            await sandbox.run(["sleep", "60"])
    assert info.value.reason == "killed"


async def test_stopped_guest_on_the_host(
    opener: Callable[[str], Opener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest on the bare host that is stopped does not keep its holder for ever."""
    monkeypatch.setattr("ringfence.sandbox.host._LEAVE_S", 0.2)
    with anyio.fail_after(PATIENCE_S):
        async with opener("host")() as sandbox:
            guest = sandbox.session.fence.process  # type: ignore[attr-defined]
            guest.send_signal(signal.SIGSTOP)
    assert guest.returncode == -signal.SIGKILL


async def test_absent_mount(workspace: Path) -> None:
    """A mount whose source is gone is told, and nothing is left of the opening."""
    before = open_files()
    spec = SandboxSpec(
        backend="bubblewrap", workspace=workspace, mounts=(Mount(source=Path("/srv/gone"), target="/data"),)
    )
    with pytest.raises(SandboxStartFailed, match="/srv/gone"):
        async with Sandbox.start(spec, sandbox_id="absentmount"):
            pass
    assert set(open_files().values()) <= set(before.values())
    assert "absentmount" not in leftovers()


async def test_refused_workspace() -> None:
    """A workspace is refused while the fence comes up: nothing is left of the opening."""

    def left() -> tuple[set[str], str]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return set(open_files().values()), children

    before = left()
    with pytest.raises(PolicyRefused, match="belongs to the system"):
        async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=Path("/usr/share"))):
            pass
    files, children = left()
    assert files <= before[0]
    assert children == before[1]


async def test_bwrap_that_fails(
    opener: Callable[[str], Opener], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where user namespaces are off the opening says how to allow them, and leaves nothing."""
    fake = tmp_path / "bwrap"
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.11.0 && exit\n'
        "echo 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(backend, "find_bwrap", lambda: choose_bwrap(str(tmp_path), None))
    before = len(open_files())
    with pytest.raises(SandboxStartFailed, match=r"uid map.*user\.max_user_namespaces"):
        async with opener("bubblewrap")():
            pass
    assert len(open_files()) <= before + 2
    assert not processes(str(fake))


@pytest.mark.parametrize("delay_s", [0.0, 0.005, 0.02, 0.05])
async def test_cancelled_opening(delay_s: float, workspace: Path) -> None:
    """An opening that is cancelled, whenever, leaves nothing."""
    sandbox_id = f"cancelled{delay_s}"
    before = open_files()
    with anyio.move_on_after(delay_s):
        async with Sandbox.start(
            SandboxSpec(backend="bubblewrap", workspace=workspace), sandbox_id=sandbox_id
        ) as sandbox:
            await sandbox.run(["sleep", "60"])
    assert set(open_files().values()) <= set(before.values())
    assert sandbox_id not in leftovers()


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("echo broken; exit 3", "exit code 3: broken"),
        ("echo one; echo two; exit 3", "exit code 3: one; two"),
        ("exit 3", "exit code 3"),
        (
            "echo why; printf %0600d 0; printf %0600d 1; exit 3",
            f"exit code 3: why; {'0' * 496}; [... 204 bytes cut ...]; {'0' * 499}1",
        ),
    ],
    ids=["one", "two", "silent", "long"],
)
async def test_failed_set_up(opener: Callable[[str], Opener], command: str, told: str) -> None:
    """A set-up command that fails is an opening that failed, with its words, if any, in one line."""
    with pytest.raises(SandboxStartFailed) as error:
        async with opener("bubblewrap")(setup=(command,)):
            pass
    assert str(error.value).endswith(f" failed with {told}")


async def test_root_ids_are_refused(workspace: Path) -> None:
    """A placement as root is refused, whoever asks."""
    from ringfence.sandbox import Placement

    with pytest.raises(PolicyRefused) as info:
        async with Sandbox.start(
            SandboxSpec(backend="bubblewrap"), placement=Placement(0, 1500, workspace, workspace)
        ):
            pass
    assert info.value.rule == "no-root"


async def test_whoever_is_inside_can_end_in_order_when_all_is_cancelled() -> None:
    """The link stays up until the context is left: what is shielded still has its sandbox."""
    said = ""
    with anyio.CancelScope() as scope:
        async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    said = (await sandbox.run(["echo", "bye"])).stdout
    assert (scope.cancelled_caught, said) == (True, "bye\n")


async def test_input_that_one_command_reads_no_more_disturbs_no_other():
    """What comes for a descriptor that the guest has closed does not reach whoever has its number now."""
    deaf = ["sh", "-c", "exec 0<&-; echo closed; sleep 60"]
    with anyio.fail_after(20):
        async with (
            Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox,
            sandbox.spawn(deaf) as first,
            sandbox.spawn(deaf) as second,
        ):
            for process in (first, second):
                assert await anext(process.stdout) == b"closed\n"
                await process.stdin.send(b"x")
            await sandbox.ping()
            async with sandbox.spawn(["sh", "-c", "sleep 0.5; wc -c"]) as slow:
                await slow.stdin.send(bytes(200_000))
                await sandbox.ping()
                for process in (first, second):
                    await process.stdin.send(b"x")
                await slow.stdin.aclose()
                assert (await anext(slow.stdout)).strip() == b"200000"
