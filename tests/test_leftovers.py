"""What the tests leave is found: the watch over them is not blind."""

import json
import subprocess
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from tests.leftovers import engines_below, instances_below, processes_below, things_of
from tests.sandbox.conftest import image_for

from ringfence.sandbox.container.labels import INSTANCE
from ringfence.sandbox.docker.address import Product

DOCKER: frozenset[tuple[Product, str | None]] = frozenset({("docker", None)})


def test_a_process_is_found(tmp_path: Path):
    """By its state directory, as long as it lives; those of other directories are not."""
    with subprocess.Popen(["sleep", "600"], env={"XDG_STATE_HOME": f"{tmp_path}/state"}) as process:
        found, elsewhere = list(processes_below(tmp_path)), list(processes_below(tmp_path / "other"))
        process.kill()
    assert ([one.split(":")[0] for one in found], elsewhere) == ([f"process {process.pid}"], [])
    assert list(processes_below(tmp_path)) == []


def test_ringfences_and_their_engines_are_found(tmp_path: Path):
    """By the files of their state directories."""
    engines = tmp_path / "home0" / "state" / "ringfence" / "docker" / "engines"
    engines.mkdir(parents=True)
    (engines / "a.json").write_text(json.dumps({"product": "podman", "engine": None}))
    (tmp_path / "home0" / "state" / "ringfence" / "instance").write_text("mine\n")
    assert instances_below(tmp_path) == {"mine"}
    assert engines_below(tmp_path) == {("podman", None)}


@pytest.mark.docker
@pytest.mark.slow
def test_containers_and_volumes_are_found():
    """By the label of the ringfence that made them, and by nothing else."""
    image = image_for("docker")
    assert image is not None
    name = f"test-leftover-{uuid4().hex}"
    labelled = ("--label", f"{INSTANCE}={name}")
    try:
        docker("create", *labelled, "--name", name, image, "true")
        docker("volume", "create", *labelled, name)
        left = anyio.run(things_of, frozenset({name}), DOCKER)
    finally:
        docker("rm", name)
        docker("volume", "rm", name)
    assert [one.split()[0] for one in left] == ["container", "volume"]
    assert anyio.run(things_of, frozenset({name}), DOCKER) == []


def docker(*words: str) -> None:
    """Run the engine's own command."""
    subprocess.run(["docker", *words], check=True, capture_output=True)
