"""Promises about a running command that is controlled by a handle."""

import signal
import time

import anyio

from ringfence.errors import SandboxFileError, UsageError
from ringfence.sandbox import Sandbox, SandboxProcess
from ringfence.testing.conformance.check import (
    OpenSandbox,
    error_of,
    sleep_of_its_own,
    sleepers,
)

_PATIENCE_S = 30.0


async def _until(process: SandboxProcess, wanted: bytes) -> bytes:
    """Read stdout until it contains a text."""
    said = b""
    with anyio.fail_after(_PATIENCE_S):
        async for piece in process.stdout:
            said += piece
            if wanted in said:
                return said
    raise AssertionError(f"{wanted!r} did not come, but {said[-200:]!r}")


async def both_ways(open_sandbox: OpenSandbox) -> None:
    """A command answers input while it runs, and ends when its stdin is closed."""
    async with open_sandbox() as sandbox, sandbox.spawn(["cat"]) as process:
        for word in (b"one\n", b"two\n"):
            await process.stdin.send(word)
            assert await _until(process, b"\n") == word
        await process.stdin.aclose()
        assert [piece async for piece in process.stdout] == []
        assert (await process.wait()).exit_code == 0


async def errors_apart(open_sandbox: OpenSandbox) -> None:
    """Stdout and stderr of a handle are separate."""
    async with (
        open_sandbox() as sandbox,
        sandbox.spawn(["sh", "-c", "echo o; echo e >&2; exit 7"]) as process,
    ):
        assert b"".join([piece async for piece in process.stdout]) == b"o\n"
        assert b"".join([piece async for piece in process.stderr]) == b"e\n"
        end = await process.wait()
    assert (end.exit_code, end.ended_by) == (7, "exit")


async def signalled(open_sandbox: OpenSandbox) -> None:
    """A signal reaches the command's group: a handler runs, and without one the command ends."""
    # Python instead of a shell, since dash loses an interrupt that arrives while it starts a command.
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: [os.write(1, b'caught'), os._exit(3)])\n"
        "os.write(1, b'ready')\n"
        "time.sleep(60)"
    )
    async with open_sandbox() as sandbox:
        async with sandbox.spawn(["python3", "-I", "-c", code]) as process:
            await _until(process, b"ready")
            await process.signal(signal.SIGINT)
            await _until(process, b"caught")
            assert (await process.wait()).exit_code == 3
        async with sandbox.spawn(["sleep", "60"]) as process:
            await process.signal(signal.SIGTERM)
            end = await process.wait()
    assert (end.signal, end.exit_code, end.ended_by) == (15, 143, "signal")


async def signal_to_the_ended(open_sandbox: OpenSandbox) -> None:
    """A signal or input for a command that has ended is no error."""
    async with open_sandbox() as sandbox, sandbox.spawn(["true"]) as process:
        await process.wait()
        await process.signal(signal.SIGTERM)
        await process.stdin.send(b"x")
        await process.stdin.aclose()
        assert (await process.wait()).exit_code == 0


async def nonsense(open_sandbox: OpenSandbox) -> None:
    """Invalid signals and sizes are errors of the caller."""
    async with open_sandbox() as sandbox:
        async with sandbox.spawn(["sleep", "60"]) as process:
            for number in (0, -9, 65, 1000):
                await error_of(UsageError, process.signal(number))
            await error_of(UsageError, process.resize(10, 10))
        for size in ((0, 80), (24, 70_000), (-1, 1)):
            await error_of(UsageError, _spawned(sandbox, size))
        async with sandbox.spawn(["sleep", "60"], tty=(24, 80)) as process:
            await error_of(UsageError, process.resize(70_000, 80))
        assert (await sandbox.run(["true"])).ok


async def _spawned(sandbox: Sandbox, size: tuple[int, int]) -> None:
    async with sandbox.spawn(["true"], tty=size):
        pass


async def could_not_start(open_sandbox: OpenSandbox) -> None:
    """Waiting for a command that does not exist raises an error that says so."""
    async with open_sandbox() as sandbox, sandbox.spawn(["no-such-command"]) as process:
        error = await error_of(SandboxFileError, process.wait())
    assert (error.errno_name, error.path) == ("ENOENT", "no-such-command")


async def terminal(open_sandbox: OpenSandbox) -> None:
    """A command finds a terminal of the given size, and is notified when the size changes."""
    # Short waits, since Python handles a signal that arrives just before a wait only when that wait ends.
    code = (
        "import os, select, sys, signal\n"
        "size = lambda *_: os.write(1, b'%d %d\\n' % os.get_terminal_size(0)[::-1])\n"
        "signal.signal(signal.SIGWINCH, size)\n"
        "print([os.isatty(n) for n in (0, 1, 2)], flush=True)\n"
        "size()\n"
        "while not select.select([0], [], [], 0.1)[0]: pass\n"
        "sys.stdin.readline()\n"
    )
    argv = ["python3", "-I", "-S", "-c", code]
    async with open_sandbox() as sandbox, sandbox.spawn(argv, tty=(24, 80)) as process:
        said = await _until(process, b"24 80")
        assert b"[True, True, True]" in said
        await process.resize(50, 132)
        await _until(process, b"50 132")
        await process.stdin.send(b"\n")
        assert (await process.wait()).exit_code == 0


async def terminal_signals(open_sandbox: OpenSandbox) -> None:
    """On a terminal Ctrl-C interrupts the command, and closing stdin is the end of its input."""
    async with open_sandbox() as sandbox:
        # Short sleeps, since Python handles a signal that arrives just before a sleep only when that sleep ends.
        code = "import os, time; os.write(1, b'ready'); [time.sleep(0.1) for _ in range(600)]"
        async with sandbox.spawn(["python3", "-I", "-S", "-c", code], tty=(24, 80)) as process:
            await _until(process, b"ready")
            await process.stdin.send(b"\x03")
            await _until(process, b"KeyboardInterrupt")
            assert (await process.wait()).exit_code == 130
        async with sandbox.spawn(["cat"], tty=(24, 80)) as process:
            await process.stdin.send(b"hello\n")
            await process.stdin.aclose()
            await _until(process, b"hello")
            with anyio.fail_after(_PATIENCE_S):
                assert (await process.wait()).exit_code == 0


async def terminal_that_is_not_read(open_sandbox: OpenSandbox) -> None:
    """More input than a terminal's buffer holds, for a command that reads none, does not affect other commands."""
    async with open_sandbox() as sandbox:
        async with sandbox.spawn(["sleep", "60"], tty=(24, 80)) as process:
            await process.stdin.send(b"x" * 20_000)
            await process.stdin.aclose()
            assert (await sandbox.run(["true"])).ok
        assert (await sandbox.run(["true"])).ok


async def killed_on_leaving(open_sandbox: OpenSandbox) -> None:
    """Leaving a handle's context kills the command and what it started."""
    sleep = f"sleep {(seconds := sleep_of_its_own())}"
    async with open_sandbox() as sandbox:
        async with sandbox.spawn(["sh", "-c", f"{sleep} & setsid {sleep} & echo ready; wait"]) as process:
            await _until(process, b"ready")
        assert await sleepers(sandbox, seconds) == 0


async def flood_and_others(open_sandbox: OpenSandbox) -> None:
    """A command whose output is not read waits, and delays no other command."""
    async with open_sandbox() as sandbox, sandbox.spawn(["sh", "-c", "yes & yes >&2"]) as process:
        await anext(process.stdout)
        started = time.monotonic()
        for _ in range(20):
            assert (await sandbox.run(["true"])).ok
        assert time.monotonic() - started < _PATIENCE_S / 2


async def floods_that_are_read(open_sandbox: OpenSandbox) -> None:
    """Two handles transfer two hundred megabytes concurrently and completely."""
    counts: list[int] = []

    async def read(sandbox: Sandbox) -> None:
        async with sandbox.spawn(["head", "-c", "100000000", "/dev/zero"]) as process:
            counts.append(sum([len(piece) async for piece in process.stdout]))

    async with open_sandbox() as sandbox, anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(read, sandbox)
    assert counts == [100_000_000, 100_000_000]


async def last_words(open_sandbox: OpenSandbox) -> None:
    """All output that a command wrote before its end is returned, even if a straggler keeps its stdout open."""
    async with open_sandbox() as sandbox:
        line = "head -c 300000 /dev/zero; sleep 60 &"
        with anyio.fail_after(_PATIENCE_S):
            result = await sandbox.run(["sh", "-c", line])
    assert (result.stdout_total, result.exit_code) == (300_000, 0)


CHECKS = (
    both_ways,
    errors_apart,
    signalled,
    signal_to_the_ended,
    nonsense,
    could_not_start,
    terminal,
    terminal_signals,
    terminal_that_is_not_read,
    killed_on_leaving,
    flood_and_others,
    floods_that_are_read,
    last_words,
)
