"""How the clients are found and run: with what each needs to work in a sandbox, and nothing more."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

COMMAND = (sys.executable, "-c", "from ringfence.cli import main; main()")
DEADLINE_S = 240  # gVisor takes a client's programs apart by ptrace, and two tests run at once
MOUNTED = "/clients"
"""Where sandboxes have what `scripts/clients.sh` installed."""
_PINNED = Path(__file__).parents[2] / "src/ringfence/sandbox/docker/image/context/agents/package.json"
_BINARIES = {
    "claude": ("@anthropic-ai/claude-code", "@anthropic-ai/claude-code-linux-*/claude"),
    "codex": ("@openai/codex", "@openai/codex-linux-*/vendor/*/bin/codex"),
}
_CLAUDE = 'exec "$CLIENT" -p --output-format stream-json --verbose --dangerously-skip-permissions'
_CODEX = """\
export CODEX_HOME=$HOME/codex
mkdir -p "$CODEX_HOME"
cat >"$CODEX_HOME/config.toml" <<END
model_provider = "$PROVIDER"
openai_base_url = "$OPENAI_BASE_URL"
[model_providers.gate]
name = "gate"
base_url = "$OPENAI_BASE_URL"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
[analytics]
enabled = false
[features]
plugins = false
apps = false
END
exec "$CLIENT" exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox $MORE -
"""
_STARTS = {"claude": _CLAUDE, "codex": _CODEX}
_SETTINGS = {
    "claude": {
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_MAX_RETRIES": "4",
    },
    "codex": {"MORE": "", "PROVIDER": "gate"},
}


@dataclass(frozen=True)
class Client:
    """A program that was installed."""

    name: str
    inside: str
    """The program, where a sandbox has it."""
    program: Path | None = None
    """On this machine; None: it is the image's."""
    sandbox: tuple[str, ...] = ("--sandbox", "bubblewrap")
    """Options of `ringfence exec`."""


@dataclass(frozen=True)
class Ended:
    """What a run came to."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Any]:
        """The lines of the client."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]

    def named(self, name: str) -> list[Any]:
        """The events with a name, of ours."""
        return [event for event in self.events if event.get("event") == name]

    def is_success(self) -> bool:
        """Whether the client itself says so, at its end."""
        last = self.events[-1] if self.events else {}
        return last.get("type") == "turn.completed" or (
            last.get("type") == "result" and last.get("is_error") is False
        )


def is_any_version() -> bool:
    """Whether the clients are tried whatever their versions: `make test-latest`, `make test-oldest`."""
    return os.environ.get("TEST_REQUIRES_CLIENTS") == "any"


def clients_in(root: Path) -> dict[str, Client]:
    """The clients in a directory of npm's, if both are there: in the pinned versions, unless any version will do."""
    pinned = json.loads(_PINNED.read_text())["dependencies"]
    found = {}
    for name, (package, pattern) in _BINARIES.items():
        manifest = root / "node_modules" / package / "package.json"
        binary = next(iter(sorted((root / "node_modules").glob(pattern))), None)
        if binary is None:
            continue
        if is_any_version() or json.loads(manifest.read_text())["version"] == pinned[package]:
            found[name] = Client(name, f"{MOUNTED}/{binary.relative_to(root)}", binary)
    return found if len(found) == len(_BINARIES) else {}


async def run_inside(
    client: Client, prompt: str, place: Path, *extra: str, environment: Mapping[str, str], before: str = ""
) -> Ended:
    """Run a client in a sandbox that may ask for models and reach nothing else.

    Args:
        client: Which.
        prompt: Comes by stdin.
        place: The workspace.
        extra: Options of `ringfence exec`.
        environment: On the host's side, beside what is there.
        before: What the shell inside does before it starts the client.
    """
    inside = {**_SETTINGS[client.name], "CLIENT": client.inside}
    options = [word for name, value in inside.items() for word in ("--env", f"{name}={value}")]
    command = [
        *COMMAND,
        *("exec", *client.sandbox, "--allow", "model", "--workspace", str(place), *options),
        *(*extra, "--", "sh", "-c", before + _STARTS[client.name]),
    ]
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(
            command, input=prompt.encode(), env={**os.environ, **environment}, check=False
        )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


RUNTIMES = {"claude": "claude-cli", "codex": "codex-cli"}
"""Of the clients, where nothing else is said."""


def task_of(
    clients: Mapping[str, Client], name: str, prompt: str, place: Path, *extra: str
) -> tuple[str, ...]:
    """The command that has a client, or a runtime by its name, work on a task."""
    runtime = RUNTIMES.get(name, name)
    client = clients["codex" if runtime == "codex-cli" else "claude"]
    program = () if client.program is None or runtime == "api" else ("--cli-path", str(client.program))
    check = () if "--verify" in extra else ("--no-verify",)  # what the client does is tried, not the check
    options = (*client.sandbox, *program, *check, "--workspace", str(place), *extra)
    return (*COMMAND, "run", "--json", "--runtime", runtime, *options, "--", prompt)


async def run_task(
    clients: Mapping[str, Client],
    name: str,
    prompt: str,
    place: Path,
    *extra: str,
    environment: Mapping[str, str],
) -> Ended:
    """Have a client work on a task. As `run_inside`, by `ringfence run`."""
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(
            task_of(clients, name, prompt, place, *extra), env={**os.environ, **environment}, check=False
        )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
