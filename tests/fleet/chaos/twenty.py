"""A fleet of twenty agents of every runtime, with schedules and triggers, on Postgres and with two workers."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import Any

import anyio
from tests.fleet.fleet_files import FleetFiles
from tests.real_clients.clients import clients_in

from ringfence.sandbox.docker.client import EngineError, open_engine
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.registry import get_backend
from ringfence.testing.scripted_model import Script, in_prompt

MOST_AT_ONCE = 6
WORKERS = 2
_AGENTS = 20
_EVERY_S = (9, 13, 17, 23, 31)
_CLIENT_EVERY_S = 45
RETRIES = 15


@dataclass(frozen=True)
class Means:
    """The agent programs and container image that this machine has beside bubblewrap."""

    claude: Path | None
    codex: Path | None
    has_sdk: bool
    image: str | None
    """The image for containers, if Docker answers."""
    pod_image: str | None
    """The image for pods, if KUBECONFIG names a cluster."""

    def lacking(self) -> list[str]:
        """Return a line for each thing that is missing."""
        found = []
        if self.claude is None:
            found.append("no clients: TEST_CLIENTS names no directory that scripts/clients.sh made")
        elif not self.has_sdk:
            found.append("no claude-sdk: uv sync --group clients")
        if self.image is None:
            found.append("no containers: TEST_CONTAINER_IMAGE is not set, or Docker does not answer")
        if self.pod_image is None:
            found.append("no pods: KUBECONFIG names no cluster")
        return found

    def runtimes(self) -> list[str]:
        """Return the agents' runtimes, in order."""
        clients = []
        if self.claude is not None:
            clients = ["claude-cli", "codex-cli", "claude-sdk" if self.has_sdk else "claude-cli"] * 2
        return [*clients, *["api"] * (_AGENTS - len(clients))]


def look() -> Means:
    """Find out what this machine has."""
    named = os.environ.get("TEST_CLIENTS")
    found = clients_in(Path(named)) if named else {}
    return Means(
        found["claude"].program if found else None,
        found["codex"].program if found else None,
        find_spec("claude_agent_sdk") is not None,
        anyio.run(_image),
        reference("base") if os.environ.get("KUBECONFIG") else None,
    )


async def _image() -> str | None:
    named = os.environ.get("TEST_CONTAINER_IMAGE")
    if not named or await get_backend("docker").unavailable() is not None:
        return None
    try:
        async with await open_engine("docker") as engine:
            await engine.image(named)
    except EngineError:
        return None
    return named


@contextmanager
def model() -> Iterator[dict[str, str]]:
    """Run the scripted model in a process of its own; yield the variables that point agents at it."""
    command = [sys.executable, "-m", "ringfence.testing.scripted_model"]
    # The server complains about each agent that is killed in the middle of a response.
    with Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            yield {
                "ANTHROPIC_BASE_URL": address,
                "ANTHROPIC_API_KEY": "sk-ant-api03-of-no-use",
                "OPENAI_BASE_URL": f"{address}/v1",
                "OPENAI_API_KEY": "sk-of-no-use",
            }
        finally:
            server.terminate()


def prompt(seconds: int) -> str:
    """Return a task that takes so many seconds, and leaves a note."""
    script = {
        "turns": [
            {
                "text": "I work.",
                "tools": [{"run": f"sleep {seconds} && echo done >note.txt && cat note.txt"}],
            },
            {"expect": {"last_tool_result": "done"}, "text": "Done."},
        ]
    }
    return f"Leave a note. {in_prompt(Script.model_validate(script))}"


def _agent(crew: FleetFiles, number: int, runtime: str, means: Means) -> dict[str, Any]:
    workspace = crew.project / f"w{number}"
    workspace.mkdir(exist_ok=True)
    (workspace / "note.txt").write_text("one\n")
    for path in (workspace, workspace / "note.txt"):
        if os.geteuid() == 0:
            os.chown(path, 12_345, 12_345)  # some sandboxes are refused on root's own files
    agent: dict[str, Any] = {
        "prompt": prompt(1 + number % 3),
        "workspace": str(workspace),
        "sandbox": {"mode": "clone", "backend": "bubblewrap"},
        "run": {"runtime": runtime},
        "limits": {"wall_clock": "3m"},
        "retry": {"attempts": RETRIES, "backoff": "1s", "most_backoff": "4s"},
    }
    if runtime != "api":
        agent["client"] = {"path": str(means.codex if runtime == "codex-cli" else means.claude)}
    return agent


def configuration(crew: FleetFiles, url: str, means: Means, *, is_busy: bool = True) -> dict[str, Any]:
    """Return the fleet's configuration.

    Args:
        crew: The fleet's files.
        url: The URL of its database.
        means: What its agents may use.
        is_busy: Whether schedules and changed files create jobs.
    """
    agents = {}
    for number, runtime in enumerate(means.runtimes()):
        agent = _agent(crew, number, runtime, means)
        every_s = _EVERY_S[number % len(_EVERY_S)] if runtime == "api" else _CLIENT_EVERY_S
        if number < _AGENTS - 4:
            schedule = {"every": f"{every_s}s", "catch_up": "once", "overlap": "skip"}
            agent["schedules"] = {"often": {**schedule, "enabled": is_busy}}
        agents[f"a{number}"] = agent
    for number in (_AGENTS - 4, _AGENTS - 3):
        agents[f"a{number}"]["triggers"] = {"next": {"type": "after", "agent": f"a{number - 4}"}}
    watching = agents[f"a{_AGENTS - 2}"]
    if is_busy:
        watching["triggers"] = {"files": {"type": "files", "paths": ["*.task"], "settle": "1s"}}
    if means.image is not None:
        for number in (_AGENTS - 1, _AGENTS - 5):
            agents[f"a{number}"]["sandbox"] = {"mode": "clone", "backend": "docker", "image": means.image}
    if means.pod_image is not None:
        for number in (_AGENTS - 6, _AGENTS - 7):
            agents[f"a{number}"]["sandbox"] = {
                "mode": "clone",
                "backend": "kubernetes",
                "image": means.pod_image,
            }
    return {
        "fleet": {
            "name": "storm",
            "workers": WORKERS,
            "concurrency": MOST_AT_ONCE,
            "drain": "30s",
            "engine": {"type": "postgres", "url": url},
        },
        "agents": agents,
    }


FOLLOWERS = {f"a{number - 4}": f"a{number}" for number in (_AGENTS - 4, _AGENTS - 3)}
"""Agents whose jobs follow those of others."""
MANUAL = f"a{_AGENTS - 1}"
"""The agent whose jobs are created by hand."""
WATCHING = f"w{_AGENTS - 2}"
"""The workspace in which changed files create jobs."""
