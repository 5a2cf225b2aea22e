"""Containers on a real engine: how they start, how they end, and how errors are reported."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.ports import kept_port
from tests.sandbox.docker.conftest import Relay, relayed

from ringfence.errors import PolicyRefused, SandboxDied, SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.container.labels import holder_of
from ringfence.sandbox.docker import backend
from ringfence.sandbox.docker.client import open_engine

pytestmark = pytest.mark.docker

Open = Callable[..., AbstractAsyncContextManager[Sandbox]]
_PATIENCE_S = 30.0
_GRACE_S = 9.0  # less than the ten seconds after which an engine kills what was told to stop


@pytest.fixture
def opened(opener: Callable[[str], Open]) -> Open:
    """A function that opens Docker sandboxes."""
    return opener("docker")


def container_of(sandbox: Sandbox) -> str:
    """The id of a sandbox's container."""
    container: str = sandbox.session.fence.container  # type: ignore[attr-defined]
    return container


async def inspected(sandbox: Sandbox) -> Any:
    """The engine's description of a sandbox's container."""
    async with await open_engine() as engine:
        return await engine.inspect(container_of(sandbox))


async def test_a_closed_sandbox_leaves_no_container(opened: Open) -> None:
    """Closing a sandbox removes its container, without the ten seconds that an engine waits for a stop."""
    async with opened() as sandbox:
        container = container_of(sandbox)
        began = time.monotonic()
    assert time.monotonic() - began < _GRACE_S
    async with await open_engine() as engine:
        assert container not in [row["Id"] for row in await engine.containers(["ringfence.sandbox"])]


async def test_a_start_that_is_cancelled_leaves_no_container(image: str) -> None:
    """Whenever a start is cancelled, also while the engine creates the container, nothing is left of it."""
    names = [f"cancelled{number}" for number in range(25)]
    for number, name in enumerate(names):
        with anyio.move_on_after(0.004 * number):
            async with Sandbox.start(SandboxSpec(backend="docker", image=image), sandbox_id=name):
                pass
    async with await open_engine() as engine:
        rows = await engine.containers(["ringfence.sandbox"])
    assert not {row["Labels"]["ringfence.sandbox"] for row in rows} & set(names)


async def test_a_second_kill_waits_for_the_first(opened: Open) -> None:
    """A second `kill` returns, like the first, only when everything inside is dead."""
    async with opened() as sandbox, await open_engine() as engine:
        found: list[int] = []

        async def kill() -> None:
            assert await sandbox.session.fence.kill() is None
            found.append(len(await engine.containers([f"ringfence.sandbox={sandbox.id}"])))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            tasks.start_soon(kill)
        assert found == [0, 0]


async def test_stop_from_outside_is_quick(opened: Open) -> None:
    """`docker stop` ends a sandbox within its grace period, as it does not wait for the guest."""
    async with opened() as sandbox:
        began = time.monotonic()
        await anyio.run_process(["docker", "stop", container_of(sandbox)])
        assert time.monotonic() - began < _GRACE_S
        with pytest.raises(SandboxDied) as caught, anyio.fail_after(_PATIENCE_S):
            await _until_dead(sandbox)
    assert caught.value.reason == "killed"


async def _until_dead(sandbox: Sandbox) -> None:
    while True:
        await sandbox.run(["true"])


async def test_killed_from_outside(opened: Open) -> None:
    """A call that waits for a command raises that the container was killed from outside."""
    async with opened() as sandbox, anyio.create_task_group() as tasks:

        async def kill() -> None:
            async with await open_engine() as engine:
                await engine.call("kill", "POST", f"/containers/{container_of(sandbox)}/kill")

        tasks.start_soon(kill)
        with pytest.raises(SandboxDied, match="killed from outside") as caught, anyio.fail_after(_PATIENCE_S):
            await sandbox.run(["sleep", "60"])
    assert caught.value.reason == "killed"


async def test_removed_from_outside(opened: Open) -> None:
    """A call after the container was removed from outside raises that."""
    async with opened() as sandbox:
        async with await open_engine() as engine:
            await engine.remove(container_of(sandbox))
        with pytest.raises(SandboxDied, match=r"removed from outside|killed from outside"):
            await sandbox.run(["true"])


async def test_engine_dies_during_a_command(image: str, tmp_path: Path) -> None:
    """If the engine dies during a command, an infrastructure fault is reported at once, and the container ends."""
    async with relayed(tmp_path) as relay:
        spec = SandboxSpec(backend="docker", image=image, engine=relay.url)
        async with Sandbox.open(spec) as sandbox, sandbox.spawn(["sleep", "60"]) as process:
            name = sandbox.id
            await relay.cut()
            with pytest.raises(SandboxDied, match="container engine is gone") as caught:
                await process.wait()
    assert (caught.value.reason, caught.value.exit_code) == ("engine", 75)
    async with await open_engine() as engine:
        (row,) = await engine.containers([f"ringfence.sandbox={name}"])
        with anyio.fail_after(_PATIENCE_S):
            await engine.wait(row["Id"])
        await engine.remove(row["Id"])


async def test_commands_need_no_connection_to_the_engine(image: str, tmp_path: Path) -> None:
    """A hundred commands open no connection to the engine."""
    async with relayed(tmp_path) as relay:
        spec = SandboxSpec(backend="docker", image=image, engine=relay.url)
        async with Sandbox.open(spec) as sandbox:
            before = relay.connections
            for _ in range(100):
                await sandbox.run(["true"])
            assert relay.connections == before


async def test_limits_are_enforced(opened: Open) -> None:
    """The container has the limits that the spec names, and `nproc` prints the number of processors."""
    async with opened(memory="256m", cpus=1, pids=64) as sandbox:
        host = (await inspected(sandbox))["HostConfig"]
        assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (2**28, 2**28, 64)
        assert (await sandbox.run(["nproc"])).stdout.strip() == "1"
        assert sandbox.facts.enforced == {
            "memory": "kernel",
            "cpus": "kernel",
            "pids": "kernel",
            "disk": "soft",
        }


async def test_spawned_command_reports_the_memory_limit(opened: Open) -> None:
    """Each `wait` for a spawned command reports that the memory limit ended it."""
    code = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    async with opened(memory="128m") as sandbox, sandbox.spawn(["python3", "-c", code]) as process:
        assert [(await process.wait()).ended_by for _ in range(2)] == ["memory", "memory"]


async def test_a_kill_from_outside_is_not_reported_as_the_memory_limit(opened: Open) -> None:
    """The flag that the engine sets when the limit kills a command does not decide why the sandbox died later."""
    code = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    async with opened(memory="128m") as sandbox:
        assert (await sandbox.run(["python3", "-c", code])).ended_by == "memory"
        async with await open_engine() as engine:
            await engine.call("kill", "POST", f"/containers/{container_of(sandbox)}/kill")
        with pytest.raises(SandboxDied, match="killed from outside") as died:
            await sandbox.run(["true"])
    assert died.value.reason == "killed"


async def test_localhost_resolves(opened: Open) -> None:
    """Without a network `localhost` resolves to 127.0.0.1."""
    async with opened() as sandbox:
        code = "import socket; print(socket.gethostbyname('localhost'))"
        assert (await sandbox.run(["python3", "-c", code])).stdout == "127.0.0.1\n"


async def test_writable_and_executable_directories(opened: Open) -> None:
    """Programs can run from TMPDIR and home, not from /tmp; /usr, /etc and / cannot be written."""
    async with opened() as sandbox:
        script = "for d in $TMPDIR ~ /tmp; do cp /bin/true $d/t && $d/t 2>/dev/null && echo $d; done"
        script += "; touch /usr/x /etc/x /x"
        result = await sandbox.run(["sh", "-c", script])
    assert result.stdout.split() == ["/var/tmp", "/home/agent"]
    assert result.stderr.count("Read-only file system") == 3


async def test_entrypoint_health_check_and_log_are_off(opened: Open) -> None:
    """The image's ENTRYPOINT, its health check and the engine's log are not used."""
    async with opened() as sandbox:
        found = await inspected(sandbox)
        assert found["HostConfig"]["LogConfig"]["Type"] == "none"
        assert "Health" not in found["State"]
        assert found["Config"]["Entrypoint"] == ["python3"]


CANNOT: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no image": ({"image": None}, SandboxStartFailed, "needs an image"),
    "absent": ({"image": "nowhere/nothing:1"}, SandboxStartFailed, "ringfence image build"),
    "absent digest": ({"image": "a@sha256:" + "0" * 64}, SandboxStartFailed, "ringfence image build"),
    "latest": ({"image": "debian:latest"}, PolicyRefused, "latest"),
    "runtime": ({"runtime": "kata"}, SandboxStartFailed, "no runtime 'kata'"),
    "engine": ({"engine": "unix:///nowhere.sock"}, SandboxStartFailed, "systemctl start docker"),
    "no other variable": ({"engine": "unix:///nowhere.sock"}, SandboxStartFailed, "name another by --engine"),
    "context": ({"engine": "nowhere"}, SandboxStartFailed, "docker context ls"),
    "memory": ({"memory": 1024**2}, SandboxStartFailed, "--memory"),
    "processors": ({"cpus": 4096.0}, SandboxStartFailed, "--cpus"),
    "network": ({"network": "bridge"}, PolicyRefused, "unsafe"),
    "no such network": (
        {"network": "ringfence-nowhere", "unsafe": ("network",)},
        SandboxStartFailed,
        "ringfence-nowhere",
    ),
}


@pytest.mark.parametrize("case", CANNOT)
async def test_impossible_specs_are_refused(opened: Open, case: str) -> None:
    """A spec that cannot be met is refused with the next step, and leaves no container."""
    changes, kind, said = CANNOT[case]
    with pytest.raises(kind, match=said):
        async with opened(**changes):
            pass
    async with await open_engine() as engine:
        assert await engine.containers([f"ringfence.holder={holder_of(os.getpid())}"]) == []


async def test_image_without_python(opened: Open, tmp_path: Path) -> None:
    """The error for an image without python3 says so."""
    name = f"ringfence-test-bare:{os.getpid()}"
    archive = (await anyio.run_process(["tar", "c", "-C", tmp_path, "."])).stdout
    await anyio.run_process(["docker", "import", "-", name], input=archive)
    try:
        with pytest.raises(SandboxStartFailed, match="needs python3"):
            async with opened(image=name):
                pass
    finally:
        await anyio.run_process(["docker", "rmi", name])


async def test_unreadable_socket(image: str, tmp_path: Path) -> None:
    """The error for a socket that the user may not use names the group that may."""
    if os.geteuid() == 0:
        pytest.skip("root may use every socket")
    relay = Relay(tmp_path / "engine.sock")
    await relay.start()
    (tmp_path / "engine.sock").chmod(0)
    with pytest.raises(SandboxStartFailed, match="usermod -aG docker"):
        async with Sandbox.open(SandboxSpec(backend="docker", image=image, engine=relay.url)):
            pass
    await relay.cut()


async def test_refused_connection() -> None:
    """The error for an engine that refuses the connection says so, and how to start it."""
    with kept_port() as port, pytest.raises(SandboxStartFailed, match="Connection refused; start it"):
        async with Sandbox.open(SandboxSpec(backend="docker", image="x:1", engine=f"tcp://127.0.0.1:{port}")):
            pass


async def test_a_guest_without_the_filter_is_refused(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel rejects the system call filter, the sandbox does not start, and the error says so."""
    monkeypatch.setattr(backend, "filter_bytes", lambda _machine: bytes(8))
    with pytest.raises(SandboxStartFailed, match="could not put the system call filter on itself"):
        async with Sandbox.open(SandboxSpec(backend="docker", image=image)):
            pass
