"""Containers that dead processes left on an engine are found by their labels and removed; others stay."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.container.labels import INSTANCE, SANDBOX, container_name, instance_id
from ringfence.sandbox.container.used_places import used_places
from ringfence.sandbox.docker import cleanup
from ringfence.sandbox.docker.client import Engine, open_engine
from ringfence.sandbox.registry import get_backend

pytestmark = pytest.mark.docker

_HOLD = """
import sys, anyio
from ringfence.sandbox import Sandbox, SandboxSpec
async def main():
    async with Sandbox.open(SandboxSpec(backend="docker", image=sys.argv[1])) as sandbox:
        print(sandbox.id, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """The machine's Docker; removes what this test's own instance left on it."""
    async with await open_engine() as opened:
        yield opened
        for row in await opened.containers([f"{INSTANCE}={instance_id()}"]):
            await opened.remove(row["Id"])


def killed_holder(image: str, **environ: str) -> str:
    """The sandbox of a process that was killed with SIGKILL while it held it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, image], stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return name


async def is_there(engine: Engine, name: str) -> bool:
    """Whether a sandbox's container exists, dead or alive."""
    return bool(await engine.containers([f"{SANDBOX}={name}"]))


@pytest.mark.slow
async def test_killed_holder(image: str, engine: Engine) -> None:
    """The next sandbox removes the container of a killed process, whose guest has ended by itself."""
    name = await anyio.to_thread.run_sync(killed_holder, image)
    (row,) = await engine.containers([f"{SANDBOX}={name}"])
    with anyio.fail_after(20):
        await engine.wait(row["Id"])  # nobody told it to end but the end of its stream
    cleanup._cleaned.clear()
    async with Sandbox.open(SandboxSpec(backend="docker", image=image)):
        assert not await is_there(engine, name)


@pytest.mark.slow
async def test_clean_up_by_name(image: str, engine: Engine) -> None:
    """A sandbox is removed by its name on every engine that was used; a dry run only names it."""
    name = await anyio.to_thread.run_sync(killed_holder, image)
    assert container_name(name) in await get_backend("docker").remove_leftovers(frozenset(), dry_run=True)
    assert container_name(name) in await get_backend("docker").remove_leftovers(frozenset({name}))
    assert not await is_there(engine, name)


@pytest.mark.slow
async def test_other_instances_are_left_alone(image: str, engine: Engine, tmp_path: Path) -> None:
    """A container of another ringfence's dead process stays, even if its sandbox is named."""
    theirs = {"RINGFENCE_STATE_DIR": str(tmp_path / "theirs")}
    name = await anyio.to_thread.run_sync(lambda: killed_holder(image, **theirs))
    try:
        await cleanup.clean_up_engine(engine, frozenset({name}))
        assert await is_there(engine, name)
    finally:
        for row in await engine.containers([f"{SANDBOX}={name}"]):
            await engine.remove(row["Id"])


async def test_containers_of_living_processes_stay(image: str, engine: Engine) -> None:
    """The container of a living process stays."""
    async with Sandbox.open(SandboxSpec(backend="docker", image=image)) as sandbox:
        await cleanup.clean_up_engine(engine, frozenset())
        assert (await sandbox.run(["true"])).ok


@pytest.mark.slow
async def test_containers_of_an_image_made_of_a_sandbox_stay(image: str, engine: Engine) -> None:
    """Containers of an image committed from a sandbox inherit its labels, but are the user's own and stay."""
    name = await anyio.to_thread.run_sync(killed_holder, image)
    (row,) = await engine.containers([f"{SANDBOX}={name}"])
    made = await engine.call("commit", "POST", "/commit", params={"container": row["Id"]}, json={})
    asked = {"Image": made["Id"], "Entrypoint": ["sleep"], "Cmd": ["60"], "NetworkDisabled": True}
    theirs = await engine.create(asked, f"ringfence-test-{name}")
    try:
        assert await cleanup.clean_up_engine(engine, frozenset({name})) != []
        assert [row["Id"] for row in await engine.containers([f"{SANDBOX}={name}"])] == [theirs]
    finally:
        await engine.remove(theirs)
        await engine.remove_image(made["Id"])


async def test_no_engine_was_used() -> None:
    """Where no engine was ever used, none is looked for."""
    assert await get_backend("podman").remove_leftovers(frozenset({"x"})) == []
    assert list(used_places(("docker", "engines"))) == []
