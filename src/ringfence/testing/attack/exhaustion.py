"""Attacks that use up the machine: processes, memory, output, disk. They run only where there is a fence."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio

from ringfence.errors import SandboxDied
from ringfence.sandbox import ExecResult, Sandbox
from ringfence.testing.attack.attack import (
    Attack,
    Scene,
    Verdict,
    answers,
    probe_command,
    run_probe,
    verdict_of,
)

_GROUP = "exhaustion"
_SLACK = 1.25
_SOFT_SLACK = {"memory": 1024**3, "pids": 500}
"""The permitted excess over a limit that is only monitored, since the excess is noticed late."""
_RSS_GROWTH = 64 * 1024**2

_FORK_BOMB = """
# Counted in memory that all children share; each child forks on.
import mmap
count = mmap.mmap(-1, 4096)
end_at = time.monotonic() + 4
most = 0
while time.monotonic() < end_at:
    try:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    except OSError:
        time.sleep(0.01)
    alive = sum(name.isdigit() for name in os.listdir("/proc"))
    if alive > FACTS["bound"]:
        end(False, "%d processes at once" % alive)
time.sleep(60)
"""

_MEMORY_BOMB = """
import mmap
LIBC.shmat.restype = ctypes.c_void_p
LIBC.shmdt.argtypes = [ctypes.c_void_p]
def segment(size):
    # A System V segment: filled, then let go of, so that it is in no process's account.
    number = LIBC.shmget(0, ctypes.c_size_t(size), 0o600)
    if number < 0:
        raise MemoryError("no segment: errno %d" % ctypes.get_errno())
    address = LIBC.shmat(number, None, 0)
    ctypes.memset(address, 120, size)
    LIBC.shmdt(address)
    return number
def queued(size):
    # Sockets whose buffers hold so many bytes: they are in no process's account either.
    made = []
    while size > 0:
        made += socket.socketpair()
        for end in made[-2:]:
            end.setblocking(False)
            try:
                while True:
                    size -= end.send(b"x" * 4096)
            except BlockingIOError:
                pass
    return made
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
step, taken, kept = 16 * 1024**2, 0, []
while taken < FACTS["bound"]:
    FILL
    taken += step
    sys.stdout.write("\\r%d" % taken)
    sys.stdout.flush()
end(False, "%d bytes could be had" % taken)
"""

_FILLS = {
    "heap": "kept.append(bytearray(b'x' * step))",
    "file": "kept.append(os.memfd_create('x')); os.write(kept[-1], b'x' * step)",
    "shared": "kept.append(mmap.mmap(-1, step)); kept[-1].write(b'x' * step)",
    "segment": "kept.append(segment(step))",
    "socket": "kept += queued(step)",
}

_FLOOD = """
block, left = b"x" * (1 << 20), FACTS["bytes"]
while left > 0:
    left -= os.write(1, block)
"""

_FILL_DISK = """
report = []
for place in FACTS["places"]:
    file = os.path.join(os.path.expanduser(place), "ringfence-fill")
    size, block = 0, b"x" * (1 << 22)
    try:
        with open(file, "wb", buffering=0) as stream:
            while size <= FACTS["bound"]:
                size += stream.write(block)
    except OSError as error:
        report.append("%s: %s at %d MB" % (place, errno.errorcode[error.errno], size >> 20))
    finally:
        can(os.unlink, file)
    if size > FACTS["bound"]:
        end(False, "%s took %d bytes" % (place, size))
end(True, "; ".join(report))
"""

_PLACES = """
def bound_of(path):
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize
unbounded = []
for line in open("/proc/self/mountinfo"):
    fields, _, rest = line.partition(" - ")
    place = fields.split()[4].encode().decode("unicode_escape")
    kind = rest.split()[0]
    inside = place == FACTS["workspace"] or place.startswith(FACTS["workspace"] + "/")
    if kind in ("proc", "devpts", "mqueue", "sysfs") or inside or not os.path.isdir(place):
        continue
    if os.access(place, os.W_OK) and bound_of(place) > FACTS["bound"]:
        unbounded.append(place)
end(not unbounded, "writable without a bound: " + ", ".join(unbounded[:5]) if unbounded else "none")
"""


def _bound(sandbox: Sandbox, limit: str, value: int) -> int:
    """Return the largest usage with which the limit counts as effective."""
    is_hard = sandbox.facts.enforced.get(limit) == "kernel"
    return int(value * _SLACK) + (0 if is_hard else _SOFT_SLACK[limit])


async def _fork_bomb(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        bound = _bound(sandbox, "pids", sandbox.spec.pids) + 16
        try:
            result = await sandbox.run(probe_command(sandbox, _FORK_BOMB, bound=bound), timeout_s=6)
            said = verdict_of(result)
            if "processes at once" in said.detail:
                return said
            if not await answers(sandbox):
                return Verdict(held=False, detail="the sandbox does not answer after the bomb")
        except SandboxDied as exc:
            return Verdict(held=True, detail=f"the sandbox is dead: {exc}")
        detail = f"never above {bound} processes; ended by {result.ended_by}, then answered"
        return Verdict(held=True, detail=detail)


async def _memory(scene: Scene, fill: str) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        bound = _bound(sandbox, "memory", sandbox.spec.memory)
        body = _MEMORY_BOMB.replace("FILL", _FILLS[fill])
        try:
            result = await sandbox.run(probe_command(sandbox, body, bound=bound), timeout_s=60)
        except SandboxDied as exc:
            return Verdict(exc.reason == "memory", f"the sandbox is dead: {exc}")
    if '"held"' in result.stdout:
        return verdict_of(result)
    if result.ended_by == "memory" or "MemoryError" in result.stderr or "Errno" in result.stderr:
        return Verdict(held=True, detail=f"ended by {result.ended_by} after {_taken(result)} MB")
    return Verdict(held=False, detail=f"ended by {result.ended_by}, not by memory, after {_taken(result)} MB")


def _taken(result: ExecResult) -> int:
    numbers = [word for word in result.stdout.split("\r") if word.strip().isdigit()]
    return int(numbers[-1]) >> 20 if numbers else 0


async def _memory_bomb(scene: Scene) -> Verdict:
    return await _memory(scene, "heap")


async def _memory_files(scene: Scene) -> Verdict:
    return await _memory(scene, "file")


async def _memory_shared(scene: Scene) -> Verdict:
    return await _memory(scene, "shared")


async def _memory_segments(scene: Scene) -> Verdict:
    return await _memory(scene, "segment")


async def _memory_sockets(scene: Scene) -> Verdict:
    return await _memory(scene, "socket")


async def _flood(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        growth, result = await _watch_memory(
            sandbox, lambda: probe_command(sandbox, _FLOOD, bytes=10 * 1024**3)
        )
    told = (
        f"ended by {result.ended_by} at {result.stdout_total >> 20} MB; our memory grew by {growth >> 20} MB"
    )
    is_bounded = result.ended_by in ("output", "timeout", "memory") and len(result.stdout_bytes) < 2_000_000
    return Verdict(is_bounded and growth <= _RSS_GROWTH, told)


async def _watch_memory(sandbox: Sandbox, command: Callable[[], list[str]]) -> tuple[int, ExecResult]:
    """Run a command; return the growth of our own memory during it, and the result."""
    before = highest = _resident()
    results: list[ExecResult] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            results.append(await sandbox.run(command(), timeout_s=60))
            tasks.cancel_scope.cancel()

        tasks.start_soon(run)
        while True:
            highest = max(highest, _resident())
            await anyio.sleep(0.02)
    return highest - before, results[0]


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _fill(scene: Scene) -> Verdict:
    async with scene.open_sandbox() as sandbox:
        bound = int(max(sandbox.spec.tmp, sandbox.spec.memory) * _SLACK)
        places = ["/tmp", "~", "/dev/shm", "/var/tmp"]  # noqa: S108 - inside the sandbox
        command = probe_command(sandbox, _FILL_DISK, places=places, bound=bound)
        try:
            result = await sandbox.run(command, timeout_s=90)
        except SandboxDied as exc:
            return Verdict(exc.reason == "memory", f"the sandbox is dead: {exc}")
        if result.ended_by == "memory":
            return Verdict(held=True, detail="ended by the memory limit, of which it is a part")
        verdict = verdict_of(result)
        with suppress(SandboxDied):
            await sandbox.run(["true"])
        return verdict


async def _places(scene: Scene) -> Verdict:
    spec = scene.shared.spec
    return await run_probe(scene.shared, _PLACES, bound=int(max(spec.tmp, spec.memory)))


ATTACKS = (
    Attack(
        "fork-bomb",
        _GROUP,
        "A fork bomb stays within the limit, and the sandbox answers afterwards.",
        _fork_bomb,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "memory-bomb",
        _GROUP,
        "Who takes more memory than the limit is ended by it.",
        _memory_bomb,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "memory-files",
        _GROUP,
        "Memory taken as files of memory counts too.",
        _memory_files,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "memory-shared",
        _GROUP,
        "Memory shared between processes counts too.",
        _memory_shared,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "memory-segments",
        _GROUP,
        "Memory in System V segments, which no process holds, counts too.",
        _memory_segments,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "memory-sockets",
        _GROUP,
        "Buffers of sockets count towards the limit.",
        _memory_sockets,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "output-flood",
        _GROUP,
        "Ten gigabytes of output end the command and do not fill the host's memory.",
        _flood,
        is_harmless=False,
        needs_own=True,
    ),
    Attack(
        "fill-disk",
        _GROUP,
        "Filling /tmp, the home and shared memory ends at a bound.",
        _fill,
        is_harmless=False,
        needs_own=True,
    ),
    Attack("unbounded-places", _GROUP, "Every writable place but the workspace has a bound.", _places),
)
"""All attacks, in the order of the report."""
