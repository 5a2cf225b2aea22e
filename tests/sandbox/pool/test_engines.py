"""Warm containers: a workspace moves into one that runs already."""

import subprocess
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from tests.sandbox.pool.conftest import Runs, git, is_cold

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
