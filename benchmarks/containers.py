"""What a container fence costs beside the engine's own ways: commands, cold starts, a hundred at once, the end.

    python -m benchmarks.containers [IMAGE]

Needs a container engine and an image with `python3` (`ringfence image build base`).
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from benchmarks.claim import Row, p50_p99
from ringfence.errors import RingfenceError
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.docker.backend import DockerBackend
from ringfence.sandbox.docker.client import Engine, EngineError, open_engine
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.workspace.open import RESERVED_ID

_EXECS = 300
_PEERS = 30
_STARTS = 15
_CROWD = 100
_AT_ONCE = 8
_MB = 1024**2


async def measure(image: str) -> list[Row]:
    """All rows of this file."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        workspace = Path(name, "workspace")
        workspace.mkdir()
        if os.getuid() == 0:
            os.chown(workspace, RESERVED_ID, RESERVED_ID)
            Path(name).chmod(0o711)
        spec = SandboxSpec(backend="docker", image=image, workspace=workspace)
        return [
            *await exec_latency(spec),
            await cold_start(spec, image),
            *await crowd(spec),
            await graceful_end(spec),
        ]


async def measure_if_there() -> list[Row]:
    """All rows, where there is an engine with an image; else none, and why not is printed."""
    image = reference("base")
    lacking: RingfenceError | None = await DockerBackend().unavailable(SandboxSpec(image=image))
    if lacking is None:
        try:
            async with await open_engine() as engine:
                await engine.image(image)
            return await measure(image)
        except EngineError as exc:
            lacking = exc
    print(f"containers are not measured: {lacking}", file=sys.stderr)
    return []


async def exec_latency(spec: SandboxSpec) -> list[Row]:
    """`true` on the held stream, in turn with the engine's exec by its command line and by its API."""
    ours, by_cli, by_api = [], [], []
    async with Sandbox.open(spec) as sandbox, await open_engine() as engine:
        container = await _container_of(engine, sandbox)
        for number in range(_EXECS):
            ours.append(await _timed(sandbox.run(["true"])))
            if number % (_EXECS // _PEERS) == 0:
                by_cli.append(await _timed(_cli("exec", container, "true")))
                by_api.append(await _timed(_exec(engine, container)))
    us, cli, api = (statistics.median(times) for times in (ours, by_cli, by_api))
    return [
        Row(
            "exec of `true` in a container",
            "≥ 20x faster than `docker exec`",
            f"{p50_p99(ours)}: {cli / us:.0f}x",
            f"`docker exec`: {p50_p99(by_cli, digits=1)}",
            cli / us >= 20,
        ),
        Row(
            "the same beside the engine's API",
            "≥ 15x faster than an exec by API",
            f"{api / us:.0f}x",
            f"API exec: {p50_p99(by_api, digits=1)}",
            api / us >= 15,
        ),
    ]


async def cold_start(spec: SandboxSpec, image: str) -> Row:
    """From nothing to the first result, in turn with a bare `docker run --network none` of the same image."""
    ours, bare = [], []
    for _ in range(_STARTS):
        began = time.perf_counter()
        async with Sandbox.open(spec) as sandbox:
            await sandbox.run(["true"])
            ours.append((time.perf_counter() - began) * 1e3)
        bare.append(await _timed(_cli("run", "--rm", "--network", "none", image, "true")))
    us, them = statistics.median(ours), statistics.median(bare)
    return Row(
        "cold container to first result",
        "faster than a bare `docker run`",
        p50_p99(ours, digits=0),
        f"`docker run --rm --network none`: {p50_p99(bare, digits=0)}",
        us < them,
    )


async def crowd(spec: SandboxSpec) -> list[Row]:
    """A hundred sandboxes: made eight at a time, idle, asked, removed."""
    limit = anyio.CapacityLimiter(_AT_ONCE)
    opened: list[Sandbox] = []
    leave = anyio.Event()
    ready = anyio.Event()

    async def hold() -> None:
        async with AsyncExitStack() as stack:
            async with limit:
                opened.append(await stack.enter_async_context(Sandbox.open(spec)))
            if len(opened) == _CROWD:
                ready.set()
            await leave.wait()

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(_CROWD):
            tasks.start_soon(hold)
        await ready.wait()
        create_s = time.perf_counter() - began
        alive = [(await sandbox.run(["true"])).ok for sandbox in opened]
        inside = [(await sandbox.stats()).memory_bytes or 0 for sandbox in opened]
        host_mb = _resident_mb()
        began = time.perf_counter()
        leave.set()
    remove_s = time.perf_counter() - began
    each_mb = statistics.median(inside) / _MB
    return [
        Row(
            "100 containers, 8 at a time",
            "≤ 40 s",
            f"{create_s:.1f} s",
            f"{sum(alive)} of 100 answer",
            create_s <= 40 and all(alive),
        ),
        Row("holding 100, idle: this process", "≤ 150 MB", f"{host_mb:.0f} MB", "-", host_mb <= 150),
        Row("each of the 100, idle, inside", "≤ 15 MB", f"median {each_mb:.1f} MB", "-", each_mb <= 15),
        Row("removing the 100", "≤ 15 s", f"{remove_s:.1f} s", "-", remove_s <= 15),
    ]


async def graceful_end(spec: SandboxSpec) -> Row:
    """Closing a sandbox in which nothing runs, beside the engine's stop of a program that ignores SIGTERM."""
    times = []
    for _ in range(_STARTS):
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(Sandbox.open(spec))
            await sandbox.run(["true"])
            times.append(await _timed(stack.aclose()))
    return Row(
        "end of a container",
        "≤ 500 ms",
        p50_p99(times, digits=0),
        "`docker stop` waits 10 s for a first process that ignores it",
        max(times) <= 500,
    )


async def _container_of(engine: Engine, sandbox: Sandbox) -> str:
    found = await engine.containers([f"ringfence.sandbox={sandbox.id}"])
    return str(found[0]["Id"])


async def _exec(engine: Engine, container: str) -> None:
    asked = {"Cmd": ["true"], "AttachStdout": True, "AttachStderr": True}
    made = await engine.call("exec", "POST", f"/containers/{container}/exec", json=asked)
    path = f"/exec/{made['Id']}/start"
    async with engine.stream("exec", "POST", path, json={"Detach": False, "Tty": False}) as output:
        await output.read()


async def _cli(*words: str) -> None:
    process = await asyncio.create_subprocess_exec("docker", *words, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def _resident_mb() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / _MB


def main() -> int:
    """Measure and print."""
    image = sys.argv[1] if len(sys.argv) > 1 else reference("base")
    rows = anyio.run(measure, image)
    for row in rows:
        print(f"{row.claim}: {row.measured} (promised {row.promise}; beside it {row.beside})")
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
