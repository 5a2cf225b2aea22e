"""The real `claude` and `codex` on this host, as clients of `ringfence mcp`, with the scripted model as their API."""

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.real_clients.clients import MOUNTED, clients_in

from ringfence.journal import run_dirs, verify_run
from ringfence.testing.scripted_model import RecordedRequest, ScriptedModelServer

pytest.importorskip("mcp", reason="not installed: pip install 'ringfence[mcp]'")

SCRIPTS = Path(sys.executable).parent
DEADLINE_S = 120


@dataclass(frozen=True)
class Ended:
    """What a client came to."""

    code: int
    out: str
    err: str
    requests: Sequence[RecordedRequest]
    """What the model was asked."""

    @property
    def events(self) -> list[Any]:
        """The lines that it printed."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


@dataclass(frozen=True)
class Desk:
    """A user's machine: a home, a project that belongs to the user, and both clients."""

    project: Path
    home: Path
    environment: dict[str, str]
    start: Callable[..., Awaitable[Ended]]

    async def ringfence(self, *arguments: str) -> str:
        """Run a command of ringfence in the project; return both its outputs."""
        done = await anyio.run_process(
            [str(SCRIPTS / "ringfence"), *arguments],
            cwd=self.project,
            env=self.environment,
            stderr=-2,
        )
        return done.stdout.decode()

    def records(self) -> list[tuple[str, str]]:
        """Each record on this machine: its state when it is verified, and its lines."""
        return [(verify_run(run).status, (run / "journal.jsonl").read_text()) for run in run_dirs()]


def programs() -> dict[str, Path]:
    """The clients on this host. Skips without them; fails where they must be there."""
    named = os.environ.get("TEST_CLIENTS")
    lacking = "TEST_CLIENTS names no directory with claude and codex; `scripts/clients.sh` makes one"
    found = clients_in(Path(named)) if named else {}
    if not found:
        (pytest.fail if os.environ.get("TEST_REQUIRES_CLIENTS") else pytest.skip)(lacking)
    return {name: Path(client.inside.replace(MOUNTED, str(named), 1)) for name, client in found.items()}


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """A desk; the model's server keeps what it was asked."""
    found = programs()
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "note.txt").write_text("one\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local" / "state"))  # where HOME has it
    async with ScriptedModelServer.serve() as server:
        environment = {
            "HOME": str(home),
            "PATH": f"{SCRIPTS}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": server.base_url,
            "ANTHROPIC_API_KEY": "sk-ant-api03-zqzq7x-5e1f0c",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CODEX_HOME": str(home / "codex"),
            "OPENAI_API_KEY": "sk-zqzq7x-77aa0d",
            "MODEL_URL": f"{server.base_url}/v1",
        }

        async def start(name: str, *arguments: str, prompt: str, cwd: Path = project, **more: str) -> Ended:
            with anyio.fail_after(DEADLINE_S):
                done = await anyio.run_process(
                    [str(found[name]), *arguments],
                    input=prompt.encode(),
                    cwd=cwd,
                    env={**environment, **more},
                    check=False,
                )
            return Ended(done.returncode, done.stdout.decode(), done.stderr.decode(), server.requests)

        yield Desk(project, home, environment, start)
