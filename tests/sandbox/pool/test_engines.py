"""Warm containers: a workspace moves into one that runs already."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import uuid4

import pytest
from tests.sandbox.docker.test_tls import behind_tls, make_certificates
from tests.sandbox.pool.conftest import Runs, cold_id, git, is_cold, is_gone
from tests.sandbox.supervisor.conftest import until

from ringfence.errors import RingfenceError
from ringfence.sandbox import Placement, Sandbox, SandboxSpec
from ringfence.sandbox.supervisor.directory import SupervisorState

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.docker]


@pytest.fixture
def image(images: Callable[[str], str | None]) -> str | None:
    """An image that the engine has."""
    return images("docker")


def docker(*words: str, stdin: str = "") -> None:
    """Run the engine's own command."""
    subprocess.run(["docker", *words], input=stdin, text=True, check=True, capture_output=True)


@pytest.fixture
def name(image: str) -> Iterator[str]:
    """A name of our own for the image."""
    made = f"localhost/ringfence-test/moving:{uuid4().hex[:12]}"
    docker("tag", image, made)
    yield made
    docker("rmi", made)


@pytest.mark.parametrize("mode", ["bind", "clone"])
async def test_a_warm_container_shows_what_a_cold_one_shows(image: str, runs: Runs, mode: str):
    """A warm container shows files, git and protected files as they are when a run takes it."""
    runs.changes |= {"backend": "docker", "image": image, "mode": mode}
    (warm,) = await runs.warmed()
    (runs.workspace / "a.txt").write_text("two\n")
    git(runs.workspace, "commit", "-qam", "second")
    async with runs.opened() as sandbox:
        seen = await sandbox.run(
            ["sh", "-c", "cat a.txt; git log --format=%s; git status --short; echo x > .envrc"]
        )
    assert sandbox.id == warm.sandbox_id
    assert seen.stdout.split() == ["two", "second", "first"]
    assert "Read-only" in seen.stderr


async def test_the_memory_limit_is_told_in_a_warm_container(image: str, runs: Runs):
    """A command that the memory limit kills in a warm container ends by `memory`."""
    runs.changes |= {"backend": "docker", "image": image, "memory": "128m"}
    (warm,) = await runs.warmed()
    code = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(400)]"
    async with runs.opened() as sandbox:
        ended = await sandbox.run(["python3", "-c", code])
    assert (sandbox.id, ended.ended_by) == (warm.sandbox_id, "memory")


async def test_a_name_that_means_another_image_since(name: str, image: str, runs: Runs):
    """A warm container of an image whose name now means another image is not used, and is replaced."""
    runs.changes |= {"backend": "docker", "image": name}
    (warm,) = await runs.warmed()
    docker("build", "-q", "-t", name, "-", stdin=f"FROM {image}\nLABEL test={name}\n")
    async with runs.opened() as sandbox:
        assert is_cold(sandbox)
    (fresh,) = await runs.ready()
    assert fresh.facts.image != warm.facts.image


@pytest.fixture
async def remote(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The engine over TLS, as one that does not see this machine's files."""
    make_certificates(tmp_path)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    async with behind_tls(tmp_path) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        yield


async def uploaded(runs: Runs, image: str) -> tuple[SandboxSpec, Placement, Path]:
    """A run whose workspace is uploaded to the engine, where a warm container waits."""
    runs.changes |= {"backend": "docker", "image": image, "mode": "clone"}
    runs.unseen = "it is elsewhere"
    spec, placement, run_dir = await runs.prepared()
    await runs.pool.refill(spec, placement, run_dir)
    await runs.ready()
    return spec, placement, run_dir


@pytest.mark.usefixtures("remote")
async def test_a_workspace_is_uploaded_to_a_warm_container(image: str, runs: Runs):
    """A warm container of a remote engine shows the run's own workspace, and gives back what was made in it."""
    spec, placement, run_dir = await uploaded(runs, image)
    assert placement.workspace_source is not None
    (placement.workspace_source / "a.txt").write_text("two\n")
    async with runs.pool.opened(spec, placement, run_dir, sandbox_id=cold_id()) as sandbox:
        assert not is_cold(sandbox)
        assert (await sandbox.run(["cat", "a.txt"])).stdout == "two\n"
        assert (await sandbox.run(["sh", "-c", "echo new >new"])).ok
    assert (placement.workspace_source / "new").read_text() == "new\n"
    assert volumes_of(sandbox.id) == ""


@pytest.mark.usefixtures("remote")
async def test_a_warm_container_whose_supervisor_is_killed_loses_nothing_on_this_machine(
    image: str, runs: Runs
):
    """If the supervisor dies while a run works, the run ends with an error, and its workspace is as it was."""
    spec, placement, run_dir = await uploaded(runs, image)
    assert placement.workspace_source is not None
    (state,) = await runs.ready()
    with pytest.raises(RingfenceError, match="supervisor"):
        await use_until_killed(runs.pool.opened(spec, placement, run_dir, sandbox_id=cold_id()), state)
    assert (placement.workspace_source / "a.txt").read_text() == "one\n"
    assert volumes_of(state.sandbox_id) == ""


async def use_until_killed(opening: AbstractAsyncContextManager[Sandbox], state: SupervisorState) -> None:
    """Open a warm sandbox, and kill its supervisor."""
    async with opening as sandbox:
        assert sandbox.id == state.sandbox_id
        os.kill(state.pid, signal.SIGKILL)
        await until(lambda: is_gone(state.pid))


def volumes_of(sandbox_id: str) -> str:
    """The volumes of a sandbox on the engine."""
    words = ["docker", "volume", "ls", "-q", "--filter", f"name={sandbox_id}"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    return subprocess.run(words, env=environ, check=True, capture_output=True, text=True).stdout
