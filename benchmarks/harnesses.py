"""Ringfence beside the Docker environments of inspect_ai, mini-swe-agent and SWE-ReX, in the same run.

    python -m benchmarks.harnesses [IMAGE]

As root, with the group `contracts` and an image (`ringfence image build base`). inspect_ai's provider gets an engine of
its own (`scripts/newer_docker.sh`), as it refuses that of Debian 12; the others use the machine's. SWE-ReX's server is
not in the image: this program's Python environment, and the machine's /usr with its Python, are mounted for it.

Containers of inspect_ai are ended by SIGKILL at once, as with an init; Debian's packages do not bring one.
Memory is the sum of the proportional set sizes (PSS) of this process and all below it, of the engine with all below it,
and of containers' shims with all below them, less the same sum before. Pages of the kernel are not in it.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio

from benchmarks.claim import Row, p50_p99
from ringfence.sandbox.docker.image.recipe import reference

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")

_ROOT = Path(__file__).parent.parent
_RUN = Path("/run/ringfence-engines/docker-trixie")
_EXECS = 300
_PEERS = 60
_SAMPLES = 10
_CROWD = 50
_AT_ONCE = 4
_COMPOSE = """services:
  default:
    image: {image}
    x-local: true
    stop_signal: SIGKILL
    network_mode: none
    command: ["sleep", "infinity"]
"""


async def measure(image: str) -> list[Row]:
    """All rows of this file."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        rows = [*await mini_swe_agent(image), *await swe_rex(image)]
        with newer_engine(image):
            file = Path(name, "compose.yaml")
            file.write_text(_COMPOSE.format(image=image))
            rows = [*await inspect_ai(str(file)), *rows]
    return rows


async def measure_if_there(image: str | None = None) -> list[Row]:
    """All rows, where the harnesses, an engine and an image are there; else none, and why not is printed."""
    try:
        import inspect_ai as _inspect_ai
        import minisweagent as _minisweagent
        import swerex as _swerex
    except ImportError as exc:
        print(f"harnesses are not measured: {exc}", file=sys.stderr)
        return []
    del _inspect_ai, _minisweagent, _swerex
    image = image or os.environ.get("TEST_CONTAINER_IMAGE") or reference("base")
    found = await anyio.run_process(["docker", "image", "inspect", image], check=False)
    if found.returncode:
        print(f"harnesses are not measured: no engine, or no image {image}", file=sys.stderr)
        return []
    return await measure(image)


# --- inspect_ai


async def inspect_ai(compose: str) -> list[Row]:
    """Its Docker provider on an engine of 26.1, and ours."""
    from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment

    from ringfence.integrations.inspect_provider import RingfenceSandboxEnvironment

    await DockerSandboxEnvironment.task_init("startup", compose)

    @asynccontextmanager
    async def sample(provider: Any, config: str | None) -> AsyncIterator[Any]:
        environments = await provider.sample_init("benchmark", config, {})
        try:
            yield next(iter(environments.values()))
        finally:
            await provider.sample_cleanup("benchmark", config, environments, False)

    def ours() -> Any:
        return sample(RingfenceSandboxEnvironment, None)

    def theirs() -> Any:
        return sample(DockerSandboxEnvironment, compose)

    async def run(environment: Any) -> None:
        assert (await environment.exec(["true"])).success

    async def use(environment: Any) -> None:
        await run(environment)
        await environment.write_file("/tmp/a.txt", "text")
        assert await environment.read_file("/tmp/a.txt") == "text"

    name, peer = "inspect_ai", "its Docker provider (26.1)"
    rows = [await _commands(name, peer, ours, theirs, run), await _samples(name, peer, ours, theirs, use)]
    rows.append(await _memory(name, peer, ours, theirs))
    await DockerSandboxEnvironment.task_cleanup("shutdown", compose, True)
    return rows


# --- mini-swe-agent and SWE-ReX


async def mini_swe_agent(image: str) -> list[Row]:
    """Its Docker environment, and ours."""
    from minisweagent.environments import get_environment

    own = {"environment_class": "ringfence.integrations.mini_swe_agent.RingfenceEnvironment"}
    docker = {"environment_class": "docker", "image": image, "cwd": "/tmp"}

    @asynccontextmanager
    async def opened(config: dict[str, Any]) -> AsyncIterator[Any]:
        made = await anyio.to_thread.run_sync(get_environment, config)
        try:
            yield made
        finally:
            await anyio.to_thread.run_sync(made.cleanup)

    async def run(environment: Any) -> None:
        output = await anyio.to_thread.run_sync(environment.execute, {"command": "true"})
        assert output["returncode"] == 0, output

    def ours() -> Any:
        return opened(own)

    def theirs() -> Any:
        return opened(docker)

    name, peer = "mini-swe-agent", "its Docker environment (20.10)"
    rows = [await _commands(name, peer, ours, theirs, run), await _samples(name, peer, ours, theirs, run)]
    return [*rows, await _memory(name, peer, ours, theirs)]


async def swe_rex(image: str) -> list[Row]:
    """Its Docker deployment, with its server from the environment of this program, and ours."""
    from swerex.deployment.docker import DockerDeployment
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
    from swerex.utils.log import get_logger

    from ringfence.integrations.swe_rex import RingfenceDeployment

    for logger in ("rex-deploy", "rex-runtime"):
        get_logger(logger).setLevel("ERROR")
    shown = [
        "-v",
        "/usr:/usr:ro",
        "-v",
        f"{sys.prefix}:{sys.prefix}:ro",
        "-e",
        f"PATH={sys.prefix}/bin:/usr/bin:/bin",
    ]

    @asynccontextmanager
    async def started(deployment: Any) -> AsyncIterator[Any]:
        await deployment.start()
        try:
            await deployment.runtime.create_session(CreateBashSessionRequest(startup_timeout=10))
            yield deployment.runtime
        finally:
            await deployment.stop()

    async def run(runtime: Any) -> None:
        assert (await runtime.run_in_session(BashAction(command="true", timeout=30))).exit_code == 0

    def ours() -> Any:
        return started(RingfenceDeployment())

    def theirs() -> Any:
        return started(DockerDeployment(image=image, pull="never", docker_args=shown))

    name, peer = "SWE-ReX", "its Docker deployment (20.10)"
    return [await _commands(name, peer, ours, theirs, run), await _samples(name, peer, ours, theirs, run)]


# --- what is measured of each

Opener = Callable[[], Any]
Use = Callable[[Any], Awaitable[None]]


async def _commands(name: str, peer: str, ours: Opener, theirs: Opener, run: Use) -> Row:
    """`true`, one after another, in turn."""
    own, other = [], []
    async with ours() as mine, theirs() as its:
        await run(mine)
        await run(its)
        for number in range(_EXECS):
            own.append(await _timed(run(mine)))
            if number % (_EXECS // _PEERS) == 0:
                other.append(await _timed(run(its)))
    return Row(
        f"{name}: a command in a sandbox",
        "faster than its Docker environment",
        f"{p50_p99(own)}: {1e3 / statistics.mean(own):.0f}/s",
        f"{peer}: {p50_p99(other, digits=1)}: {1e3 / statistics.mean(other):.1f}/s",
        statistics.median(own) < statistics.median(other),
    )


async def _samples(name: str, peer: str, ours: Opener, theirs: Opener, use: Use) -> Row:
    """A sandbox up, used once, and down, in turn."""

    async def whole(opener: Opener) -> None:
        async with opener() as environment:
            await use(environment)

    own, other = [], []
    for _ in range(_SAMPLES):
        own.append(await _timed(whole(ours)))
        other.append(await _timed(whole(theirs)))
    return Row(
        f"{name}: a sample (up, used once, down)",
        "faster than its Docker environment",
        p50_p99(own, digits=0),
        f"{peer}: {p50_p99(other, digits=0)}",
        statistics.median(own) < statistics.median(other),
    )


async def _memory(name: str, peer: str, ours: Opener, theirs: Opener) -> Row:
    """What fifty at once take."""
    own, other = await _crowd(ours), await _crowd(theirs)
    return Row(
        f"{name}: memory of {_CROWD} idle samples at once",
        "less than its Docker environment",
        f"{own:.0f} MB (PSS)",
        f"{peer}: {other:.0f} MB, with the engine's processes",
        own < other,
    )


async def _crowd(opener: Opener) -> float:
    before = _pss_mb()
    limit, leave = anyio.CapacityLimiter(_AT_ONCE), anyio.Event()
    ready: list[anyio.Event] = [anyio.Event() for _ in range(_CROWD)]

    async def hold(is_ready: anyio.Event) -> None:
        async with limit:
            context = opener()
            await context.__aenter__()
        is_ready.set()
        await leave.wait()
        async with limit:
            await context.__aexit__(None, None, None)

    async with anyio.create_task_group() as tasks:
        for each in ready:
            tasks.start_soon(hold, each)
        for each in ready:
            await each.wait()
        await asyncio.sleep(2)  # until what was busy with starting is idle
        grown = _pss_mb() - before
        leave.set()
    await asyncio.sleep(2)
    return grown


async def _timed(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def _pss_mb() -> float:
    """PSS of this process, of engines and of shims, each with all below it."""
    parents, roots = {}, {os.getpid()}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            number = int(entry.name)
            parents[number] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (entry / "comm").read_text().startswith(("dockerd", "containerd")):
                roots.add(number)

    def is_counted(number: int) -> bool:
        while number not in roots and number > 1:
            number = parents.get(number, 0)
        return number in roots

    return sum(_pss_kb(number) for number in parents if is_counted(number)) / 1024


def _pss_kb(number: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


@contextmanager
def newer_engine(image: str) -> Iterator[None]:
    """An engine that inspect_ai's provider accepts, with the image."""
    script = str(_ROOT / "scripts" / "newer_docker.sh")
    directory = subprocess.run(
        [script, "start"], check=True, capture_output=True, text=True
    ).stdout.splitlines()[-1]
    changed = {
        "DOCKER_HOST": f"unix://{_RUN}/docker.sock",
        "DOCKER_CONFIG": f"{directory}/config",
        "PATH": f"{directory}/usr/bin:{os.environ['PATH']}",
    }
    before = {name: os.environ.get(name) for name in changed}
    saved = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
    os.environ.update(changed)
    try:
        subprocess.run(["docker", "load", "-q"], stdin=saved.stdout, check=True, stdout=subprocess.DEVNULL)
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        subprocess.run([script, "stop"], check=True)


def main(rows: Sequence[Row]) -> int:
    """Print rows."""
    for row in rows:
        print(f"{row.claim}: {row.measured} (beside it {row.beside})")
    return 0 if all(row.is_kept for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(anyio.run(measure_if_there, sys.argv[1] if sys.argv[1:] else None)))
