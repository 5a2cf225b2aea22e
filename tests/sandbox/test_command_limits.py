"""What each command inside is limited to by itself, and the disk that all of them may fill."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from ringfence.config.units import ByteCount
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.base import Launch
from ringfence.sandbox.host import HostBackend
from ringfence.sandbox.protocol.loader import guest_arguments

MIB = 1024**2


async def test_a_crash_starts_no_program_of_the_host():
    """A limit of 0 would: a program that collects core files runs on the host, and only a limit of 1 keeps it away."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        told = await sandbox.run(["grep", "^Max core file size", "/proc/self/limits"])
    assert told.stdout.split()[-3:-1] == ["1", "1"]


@pytest.mark.parametrize("length", [1000, 100_000])
async def test_a_program_with_a_long_name_is_not_started(length: int):
    """And the sandbox goes on."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        long = await sandbox.run(["/" + "x" * length])
        short = await sandbox.run(["true"])
    assert (long.is_started, long.exit_code, short.ok) == (False, 126, True)
    assert "File name too long" in long.stderr


async def test_a_file_does_not_grow_beyond_the_disk_limit(workspace: Path):
    """It is cut off as it is written, before anybody looks, and the end names the limit."""
    spec = SandboxSpec(backend="bubblewrap", workspace=workspace, disk=ByteCount(8 * MIB))
    async with Sandbox.open(spec) as sandbox:
        told = await sandbox.run(["sh", "-c", "exec head -c 20000000 /dev/zero > large"])
    assert told.ended_by == "disk"
    assert (workspace / "large").stat().st_size == 8 * MIB


async def test_a_program_that_aborts_for_lack_of_processes_ends_by_their_limit():
    """Where the kernel counts them, and the program cannot do without another one."""
    spec = SandboxSpec(backend="bubblewrap", pids=20, soft_limits=True)
    async with Sandbox.open(spec) as sandbox:
        if (await sandbox.stats()).forks_refused is None:
            pytest.skip("no control group of version 2 counts processes here")
        calm = await sandbox.run(["sh", "-c", "kill -ABRT $$"])
        line = "(for i in $(seq 40); do sleep 30 & done) 2>/dev/null; kill -ABRT $$"
        crowded = await sandbox.run(["sh", "-c", line])
    assert (calm.ended_by, crowded.ended_by) == ("signal", "pids")


async def test_processes_are_limited_where_only_the_kernels_own_limit_can_be_had():
    """Each command has it, where no control group counts processes."""
    placement = Placement(os.getuid(), os.getgid(), None, None)
    spec = SandboxSpec(backend="host")
    name = secrets.token_hex(4)
    fence = await HostBackend().start(Launch(name, spec, placement, guest_arguments()))
    fence.facts = replace(fence.facts, process_limit=4321)
    async with Sandbox(fence, spec, placement, sandbox_id=name, chosen_because="").running() as sandbox:
        with anyio.fail_after(20):
            told = await sandbox.run(["grep", "^Max processes", "/proc/self/limits"])
    assert told.stdout.split()[2:4] == ["4321", "4321"]
