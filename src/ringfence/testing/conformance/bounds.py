"""Promises about limits: time, output, memory, processes, and which processes are killed at a limit."""

import time

import anyio

from ringfence.errors import SandboxDied, UsageError
from ringfence.sandbox import ExecResult, Sandbox
from ringfence.testing.conformance.check import (
    OpenSandbox,
    error_of,
    python,
    shell,
    sleep_of_its_own,
    sleepers,
    until_asleep,
)

_KILL_S = 10.0
"""A kill takes some milliseconds, but a busy machine may delay it by seconds."""
_PATIENCE_S = 30.0
_DEADLINES_S = (1.0, 5.0, 20.0)
"""The first deadline suffices, unless the machine is so busy that the command has not begun by then."""
_STRAGGLERS = """
import os, sys, time
def leave(prepare):
    if os.fork() == 0:
        prepare()
        if os.fork() == 0:
            for name in list(os.environ):
                del os.environ[name]
            os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
        os._exit(0)
    os.wait()
leave(lambda: None)
leave(os.setsid)
leave(lambda: [os.setsid(), os.closerange(0, 100), os.chdir("/")])
print("ready", flush=True)
time.sleep(60)
"""
_GREEDY = """
import os
os.write(1, b"ready\\n")
kept = []
while True:
    kept.append(bytearray(os.urandom(1 << 20) * 8))
"""


_FRUITFUL = """
import os, time
try:
    for _ in range(60):
        if os.fork() == 0:
            time.sleep(64.5)
except OSError:
    pass
os.write(1, b"full")
time.sleep(60)
"""


async def timeout(open_sandbox: OpenSandbox) -> None:
    """A command past its deadline is killed at once, and its result says so; output up to then is kept."""
    command = ["sh", "-c", "trap '' TERM INT; echo before; sleep 60"]
    async with open_sandbox() as sandbox:
        for timeout_s in _DEADLINES_S:
            started = time.monotonic()
            result = await sandbox.run(command, timeout_s=timeout_s)
            took = time.monotonic() - started
            assert (result.ended_by, result.exit_code, result.signal) == ("timeout", 137, 9)
            assert timeout_s <= took < timeout_s + _KILL_S
            if result.stdout:
                break
    assert result.stdout == "before\n"


async def timeout_of_a_tree(open_sandbox: OpenSandbox) -> None:
    """A deadline kills double-forked, re-sessioned, env-cleared stragglers too, and at once."""
    seconds = sleep_of_its_own()
    async with open_sandbox() as sandbox:
        for timeout_s in _DEADLINES_S:
            started = time.monotonic()
            result = await python(sandbox, _STRAGGLERS, seconds, timeout_s=timeout_s)
            assert time.monotonic() - started < timeout_s + _KILL_S
            assert result.ended_by == "timeout"
            assert await sleepers(sandbox, seconds) == 0
            if result.stdout:
                break
    assert result.stdout == "ready\n"


async def timeout_spares_others(open_sandbox: OpenSandbox) -> None:
    """The deadline of one command does not affect another."""
    results: list[ExecResult] = []

    async def other(sandbox: Sandbox) -> None:
        results.append(await shell(sandbox, "sleep 1; echo survived"))

    async with open_sandbox() as sandbox, anyio.create_task_group() as tasks:
        tasks.start_soon(other, sandbox)
        assert (await sandbox.run(["sleep", "60"], timeout_s=0.3)).ended_by == "timeout"
    assert results[0].stdout == "survived\n"


async def output_limit(open_sandbox: OpenSandbox) -> None:
    """The head and tail of long output are kept; a mark between them gives the number of bytes that were cut."""
    code = "import sys; sys.stdout.write('h' * 500_000 + 't' * 500_000); sys.stderr.write('e' * 10)"
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["python3", "-c", code], output_limit_bytes=1000)
    assert result.stdout == "h" * 500 + "\n[... 999000 bytes cut ...]\n" + "t" * 500
    assert (result.stdout_total, result.stderr, result.ended_by) == (1_000_000, "e" * 10, "exit")


async def output_of_the_limit(open_sandbox: OpenSandbox) -> None:
    """Output of exactly the limit's size is complete and has no mark."""
    async with open_sandbox() as sandbox:
        result = await shell(sandbox, "printf 0123456789")
        exact = await sandbox.run(["printf", "0123456789"], output_limit_bytes=10)
        none = await sandbox.run(["printf", "0123456789"], output_limit_bytes=0)
    assert result.stdout == exact.stdout == "0123456789"
    assert none.stdout == "\n[... 10 bytes cut ...]\n"


async def flood(open_sandbox: OpenSandbox) -> None:
    """A command that prints more than the flood limit is killed, and its result says so."""
    async with open_sandbox() as sandbox:
        result = await sandbox.run(["yes"], flood_limit_bytes=10_000_000, timeout_s=60)
        assert (await sandbox.run(["true"])).ok
    assert (result.ended_by, len(result.stdout_bytes) < 1_100_000) == ("output", True)


async def cancelled(open_sandbox: OpenSandbox) -> None:
    """Cancelling `run` kills the command and everything it started."""
    sleep = f"sleep {(seconds := sleep_of_its_own())}"
    async with open_sandbox() as sandbox:
        with anyio.move_on_after(0.5) as scope:
            await shell(sandbox, f"{sleep} & setsid {sleep} & {sleep}")
        assert scope.cancelled_caught
        assert await sleepers(sandbox, seconds) == 0


async def many_at_once(open_sandbox: OpenSandbox) -> None:
    """32 commands run at the same time, and each gets its own output."""
    results: dict[int, str] = {}

    async def one(sandbox: Sandbox, number: int) -> None:
        result = await sandbox.run(["sh", "-c", f"read word; echo {number} $word"], stdin=b"%d\n" % number)
        results[number] = result.stdout

    async with open_sandbox() as sandbox, anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(one, sandbox, number)
    assert results == {number: f"{number} {number}\n" for number in range(32)}


async def more_than_fit(open_sandbox: OpenSandbox) -> None:
    """Of 300 concurrent commands each succeeds or is refused as too many, and the sandbox stays usable."""
    codes: list[int] = []

    async def one(sandbox: Sandbox) -> None:
        try:
            codes.append((await sandbox.run(["true"])).exit_code)
        except UsageError as refused:
            assert "at once" in str(refused)  # noqa: PT017 -- either end is right

    async with open_sandbox(pids=4096) as sandbox:
        async with anyio.create_task_group() as tasks:
            for _ in range(300):
                tasks.start_soon(one, sandbox)
        assert codes == [0] * len(codes)
        assert len(codes) >= 100
        assert (await sandbox.run(["true"])).ok


async def stats(open_sandbox: OpenSandbox) -> None:
    """The sandbox reports the memory, processor time and processes that everything inside uses."""
    async with open_sandbox() as sandbox:
        before = await sandbox.stats()
        async with sandbox.spawn(["python3", "-c", _HOLD]) as process:
            await anext(process.stdout)
            during = await sandbox.stats()
    assert before.memory_bytes is not None
    assert during.memory_bytes is not None
    assert before.cpu_s is not None
    assert during.cpu_s is not None
    assert before.pids is not None
    assert during.pids is not None
    assert before.pids >= 1
    assert during.memory_bytes > 60_000_000
    assert during.cpu_s > before.cpu_s


_HOLD = """
import time
kept = bytearray(b"x") * 64_000_000
end = time.process_time() + 0.05
while time.process_time() < end: pass
print("ready", flush=True)
time.sleep(60)
"""


async def memory(open_sandbox: OpenSandbox) -> None:
    """A command that exceeds the memory limit ends by `memory`, or the sandbox dies with that reason."""
    async with open_sandbox(memory="96m", soft_limits=True) as sandbox:
        try:
            ended = (await python(sandbox, _GREEDY, timeout_s=30)).ended_by
        except SandboxDied as died:
            ended = died.reason  # type: ignore[assignment]  # both words are `memory`
        assert ended == "memory"


async def memory_of_a_child(open_sandbox: OpenSandbox) -> None:
    """The result is the same if a child, and not the command itself, exceeds the memory limit."""
    async with open_sandbox(memory="96m", soft_limits=True) as sandbox:
        try:
            result = await sandbox.run(["sh", "-c", 'python3 -c "$1"; exit $?', "sh", _GREEDY], timeout_s=30)
            ended = result.ended_by
        except SandboxDied as died:
            ended = died.reason  # type: ignore[assignment]  # both words are `memory`
        assert ended == "memory"


async def too_many_processes(open_sandbox: OpenSandbox) -> None:
    """When no process can be created, a command is refused as a result, and the sandbox stays usable."""
    async with open_sandbox(pids=24, soft_limits=True) as sandbox:
        async with sandbox.spawn(["python3", "-I", "-S", "-c", _FRUITFUL]) as greedy:
            async for _ in greedy.stdout:
                break  # no more processes can be created, or a watchdog has ended it
            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):  # may or may not start: each must end
                        tasks.start_soon(sandbox.run, ["true"])
        result = await sandbox.run(["true"])
    assert result.ok, result.stderr


async def background(open_sandbox: OpenSandbox) -> None:
    """A process left in the background survives its command."""
    seconds = sleep_of_its_own()
    async with open_sandbox() as sandbox:
        result = await shell(sandbox, f"sleep {seconds} >/dev/null 2>&1 & echo started")
        assert result.stdout == "started\n"
        await until_asleep(sandbox, seconds)
        assert await sleepers(sandbox, seconds) == 1


async def time_to_live(open_sandbox: OpenSandbox) -> None:
    """After its time to live the sandbox dies, and waiting and later calls raise that reason."""
    async with open_sandbox(ttl_s=1) as sandbox:
        error = await error_of(SandboxDied, sandbox.run(["sleep", "60"]))
        after = await error_of(SandboxDied, sandbox.run(["true"]))
    assert (error.reason, after.reason, error.sandbox_id) == ("ttl", "ttl", sandbox.id)


CHECKS = (
    timeout,
    timeout_of_a_tree,
    timeout_spares_others,
    output_limit,
    output_of_the_limit,
    flood,
    cancelled,
    many_at_once,
    more_than_fit,
    stats,
    memory,
    memory_of_a_child,
    too_many_processes,
    background,
    time_to_live,
)
