"""Promises about a sandbox's beginning and end."""

import time

import anyio

from ringfence.errors import SandboxDied
from ringfence.sandbox import Sandbox
from ringfence.testing.conformance.check import (
    OpenSandbox,
    error_of,
    python,
    shell,
    sleep_of_its_own,
    sleepers,
    until_asleep,
)

_SOON_S = 20.0
"""Well below the 60 s that the commands would take: a busy machine may need some of the time."""


async def closed(open_sandbox: OpenSandbox) -> None:
    """Every call on a closed sandbox raises that it is gone."""
    async with open_sandbox() as sandbox:
        pass
    for call in (
        lambda: sandbox.run(["true"]),
        lambda: sandbox.read_file("file"),
        lambda: sandbox.write_file("file", b""),
        lambda: sandbox.list_dir(),
        lambda: sandbox.remove("file"),
        lambda: sandbox.stats(),
        lambda: _spawned(sandbox),
    ):
        error = await error_of(SandboxDied, call())
        assert (error.sandbox_id, error.reason) == (sandbox.id, "killed")


async def _spawned(sandbox: Sandbox) -> None:
    async with sandbox.spawn(["true"]):
        pass


async def closed_while_in_use(open_sandbox: OpenSandbox) -> None:
    """A caller that waits for a command when the sandbox is closed receives the error that it is gone."""
    told: list[str] = []

    async def wait(sandbox: Sandbox) -> None:
        error = await error_of(SandboxDied, sandbox.run(["sleep", "60"], timeout_s=None))
        told.append(error.reason)

    async with anyio.create_task_group() as tasks, open_sandbox() as sandbox:
        tasks.start_soon(wait, sandbox)
        await sandbox.run(["true"])
    assert told == ["killed"]


async def cancelled(open_sandbox: OpenSandbox) -> None:
    """Cancelling a sandbox together with its callers does not wait for the commands inside."""
    started = time.monotonic()
    with anyio.move_on_after(30) as scope:
        async with open_sandbox() as sandbox, sandbox.spawn(["sleep", "60"]):
            await sandbox.run(["true"])
            started = time.monotonic()
            scope.cancel()
            await sandbox.run(["sleep", "60"])
    assert time.monotonic() - started < _SOON_S


async def callers_error(open_sandbox: OpenSandbox) -> None:
    """An error of the caller's code leaves the context unchanged."""

    async def fail() -> None:
        async with open_sandbox():
            raise LookupError("mine")

    error = await error_of(LookupError, fail())
    assert str(error) == "mine"


async def one_is_not_another(open_sandbox: OpenSandbox) -> None:
    """Two sandboxes have different ids, and neither sees the other's processes."""
    async with open_sandbox() as one, open_sandbox() as other:
        assert one.id != other.id
        await shell(one, f"sleep {(seconds := sleep_of_its_own())} >/dev/null 2>&1 &")
        await until_asleep(one, seconds)
        assert await sleepers(other, seconds) == 0


async def set_up(open_sandbox: OpenSandbox) -> None:
    """Set-up commands run in the workspace before anything else."""
    async with open_sandbox(setup=("echo one > made", "echo two >> made")) as sandbox:
        assert await sandbox.read_file("made") == b"one\ntwo\n"


async def guest_is_out_of_reach(open_sandbox: OpenSandbox) -> None:
    """No command inside can signal, stop or trace the guest to any effect but the sandbox's end."""
    code = (
        "import os\n"
        "try: os.kill(1, 9)\n"
        "except OSError: pass\n"
        "for name in ('mem', 'fd/0', 'fd/3', 'environ'):\n"
        " try: open(f'/proc/1/{name}', 'rb').read(1); print('opened', name)\n"
        " except OSError: pass\n"
    )
    async with open_sandbox() as sandbox:
        assert (await python(sandbox, code)).stdout == ""
        assert (await sandbox.run(["true"])).ok


_KILLER = """
import os
def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[1]
guest, ours = parent(os.getppid()), str(os.getppid())
while True:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if name != ours and parent(name) == guest:
                os.kill(int(name), 9)
        except OSError:
            pass
"""


async def supervisors_are_killed(open_sandbox: OpenSandbox) -> None:
    """Killing the processes between the guest and the commands kills commands, but not the sandbox."""
    async with open_sandbox() as sandbox, sandbox.spawn(["python3", "-c", _KILLER]):
        ends = {(await sandbox.run(["true"], timeout_s=30)).ended_by for _ in range(60)}
    assert ends <= {"exit", "signal"}


async def facts(open_sandbox: OpenSandbox) -> None:
    """The sandbox reports its backend and how each limit is enforced."""
    async with open_sandbox() as sandbox:
        assert sandbox.facts.backend
        assert set(sandbox.facts.enforced) == {"memory", "cpus", "pids", "disk"}
        assert sandbox.facts.environment["PATH"]
        assert sandbox.workspace.startswith("/")


CHECKS = (
    closed,
    closed_while_in_use,
    cancelled,
    callers_error,
    one_is_not_another,
    set_up,
    guest_is_out_of_reach,
    supervisors_are_killed,
    facts,
)
