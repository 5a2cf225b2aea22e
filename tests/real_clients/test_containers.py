"""The same clients as the image `agents` has them, in containers."""

import os
from pathlib import Path

import anyio
import pytest
from tests.sandbox.conftest import image_for

from ringfence.sandbox.docker.client import EngineError, open_engine
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.testing.scripted_model import in_prompt

from .clients import Client
from .conftest import KEYS, Lab
from .test_keyless import edits

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def clients(tmp_path: Path) -> dict[str, Client]:
    """Those of the image; skips where it was not built, fails where engines must be there."""
    image_for("docker")
    image = reference("agents")
    if not anyio.run(_is_there, image):
        lacking = f"there is no image {image!r}; `ringfence image build --bootstrap agents` makes it"
        if os.environ.get("TEST_REQUIRES_ENGINES"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    sandbox = ("--sandbox", "docker", "--image", image)
    return {name: Client(name, name, sandbox=sandbox) for name in ("claude", "codex")}


async def _is_there(image: str) -> bool:
    async with await open_engine("docker") as engine:
        try:
            await engine.image(image)
        except EngineError:
            return False
        return True


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_real_client_does_its_task_in_a_container(lab: Lab, workspace: Path, name: str):
    """Without a network and without a key, as in bubblewrap."""
    ended = await lab.run(name, in_prompt(edits("two")), workspace, **KEYS)
    assert (ended.code, ended.is_success()) == (0, True), ended
    assert (workspace / "note.txt").read_text() == "two\n"
    assert len(lab.server.requests) == 3
