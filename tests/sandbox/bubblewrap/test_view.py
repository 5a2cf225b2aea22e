"""What of the kernel's own files and objects is seen in a bubblewrap sandbox."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.sandbox import Sandbox, SandboxSpec

KERNEL_FILES = ("kallsyms", "kcore", "key-users", "keys", "latency_stats", "sched_debug", "timer_list")
THERE = [f"/proc/{name}" for name in KERNEL_FILES if Path("/proc", name).exists()]
_PRIVATE, _REMOVE = 0, 0


@pytest.fixture(name="segment")
def _segment() -> Iterator[int]:
    """A segment of shared memory of the host's."""
    library = ctypes.CDLL(None)
    found = library.shmget(_PRIVATE, 4096, 0o666)
    assert str(found) in Path("/proc/sysvipc/shm").read_text()
    yield found
    library.shmctl(found, _REMOVE, None)


async def test_files_that_tell_about_the_machine_are_empty():
    """Keys, symbols and timers are those of the machine, whoever asks."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        told = await sandbox.run(["stat", "-c", "%F", *THERE])
    assert told.stdout.splitlines() == ["character special file"] * len(THERE)


@pytest.mark.usefixtures("segment")
async def test_shared_memory_of_the_host_is_not_there():
    """Segments have numbers, which any process could name."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
        told = await sandbox.run(["cat", "/proc/sysvipc/shm"])
    assert told.ok
    assert len(told.stdout.splitlines()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can have groups of its choice")
async def test_groups_of_the_caller_stay_outside():
    """A group of root's may have powers, such as docker's."""
    before = os.getgroups()
    os.setgroups([34567])
    try:
        async with Sandbox.open(SandboxSpec(backend="bubblewrap")) as sandbox:
            told = await sandbox.run(["grep", "^Groups:", "/proc/self/status"])
    finally:
        os.setgroups(before)
    assert told.stdout.split() == ["Groups:"]
