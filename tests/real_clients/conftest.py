"""The real `claude` and `codex`, in a real sandbox, with the scripted model on the host behind the model gateway."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringfence.testing.scripted_model import ScriptedModelServer

from .clients import MOUNTED, Client, Ended, clients_in, run_inside, run_task

KEYS = {
    "ANTHROPIC_API_KEY": "sk-ant-api03-zqzq7x-5e1f0c",
    "OPENAI_API_KEY": "sk-zqzq7x-77aa0d",
}
OWNER_UID = 12_345
"""Somebody who is not root, as whom root's tests own a workspace."""


def own(directory: Path) -> None:
    """Let a workspace of root's tests belong to somebody else, as root lends nothing of its own."""
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            os.chown(path, OWNER_UID, OWNER_UID)


@pytest.fixture
def clients(tmp_path: Path) -> dict[str, Client]:
    """The programs that `scripts/clients.sh` installed. Skips without them; fails where they must be there."""
    named = os.environ.get("TEST_CLIENTS")
    lacking = "TEST_CLIENTS names no directory with claude and codex; `scripts/clients.sh` makes one"
    found = clients_in(Path(named)) if named else {}
    if not found and os.environ.get("TEST_REQUIRES_CLIENTS"):
        pytest.fail(lacking)
    if not found:
        pytest.skip(lacking)
    settings = tmp_path / "config" / "ringfence" / "ringfence.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"sandbox:\n  mounts:\n    - {{source: {named}, target: {MOUNTED}}}\n")
    return found


@pytest.fixture
def programs(clients: dict[str, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The same programs, where they are on this host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = os.environ["TEST_CLIENTS"]
    return {name: Path(client.inside.replace(MOUNTED, root, 1)) for name, client in clients.items()}


@pytest.fixture
def workspace() -> Iterator[Path]:
    """A directory with one file to edit."""
    directory = Path(tempfile.mkdtemp(prefix="ringfence-clients-"))
    note = directory / "note.txt"
    note.write_text("one\n")
    own(directory)
    yield directory
    shutil.rmtree(directory)


@dataclass(frozen=True)
class Lab:
    """A server, and what runs a client against it through the gateway, by name."""

    server: ScriptedModelServer
    run: Callable[..., Awaitable[Ended]]
    task: Callable[..., Awaitable[Ended]]
    """The same by `ringfence run`."""
    state: Path
    """Where ringfence keeps its records."""
    environment: dict[str, str]
    """Of both."""


@pytest.fixture
async def lab(
    clients: dict[str, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Lab]:
    """The scripted model as the API that the host's base URLs name; each prompt carries its script."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    async with ScriptedModelServer.serve() as server:
        base_urls = {"ANTHROPIC_BASE_URL": server.base_url, "OPENAI_BASE_URL": f"{server.base_url}/v1"}

        async def run(
            name: str, prompt: str, place: Path, *extra: str, before: str = "", **variables: str
        ) -> Ended:
            environment = {**base_urls, **variables}
            return await run_inside(
                clients[name], prompt, place, *extra, environment=environment, before=before
            )

        async def task(name: str, prompt: str, place: Path, *extra: str, **variables: str) -> Ended:
            environment = {**base_urls, **KEYS, **variables}
            return await run_task(clients, name, prompt, place, *extra, environment=environment)

        yield Lab(server, run, task, tmp_path / "state", {**base_urls, **KEYS})
