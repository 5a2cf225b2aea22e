"""The environment of a recipe: its directory, the commands of the recorded version, and SIGKILL for all processes."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0
CLIENTS = Path("/srv/clients")
"""Mount point of the directory that TEST_CLIENTS names."""
PROGRAMS = {
    "claude": "node_modules/@anthropic-ai/claude-code-linux-*/claude",
    "codex": "node_modules/@openai/codex-linux-*/vendor/*/bin/codex",
}
"""The programs of the agent CLIs, relative to that directory."""
API_KEYS = {"ANTHROPIC_API_KEY": "sk-ant-api03-zqzq7x-5e1f0c", "OPENAI_API_KEY": "sk-zqzq7x-77aa0d"}
"""Invented keys; the scripted model accepts any."""
_IDENTITY = ("-c", "user.name=dev", "-c", "user.email=dev@example.invalid")


@dataclass
class RecipeEnvironment:
    """The directory of one case, and what a recipe does there.

    Args:
        root: An empty directory; what it holds at the end becomes the archive.
        python: The interpreter of the version that is recorded.
        image: A container image, for recipes that need one.
    """

    root: Path
    python: str
    image: str | None = None
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("home", "project"):
            (self.root / name).mkdir()
        self.variables = {
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RINGFENCE_STATE_DIR": str(self.root / "state"),
            "TZ": "UTC",
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
        }

    @property
    def project(self) -> Path:
        """The workspace."""
        return self.root / "project"

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.root / "state"

    def write(self, name: str, text: str) -> Path:
        """Write a file, named relative to the directory of the case."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_script(self, name: str, *turns: Mapping[str, Any], **document: Any) -> str:
        """Write a script for the scripted model, and return the value of `--model` that selects it."""
        content = {"price": {"input": 1, "output": 1}, **({"turns": turns} if turns else {}), **document}
        return f"scripted:{self.write(f'{name}.yaml', json.dumps(content, indent=1))}"

    def commit_project(self) -> None:
        """Turn the workspace into a Git repository with one commit of all its files."""
        self.git("init", "--quiet", "--initial-branch=main", "--template=")
        self.git("add", "--all")
        self.git(*_IDENTITY, "commit", "--quiet", "--message=Start")

    def git(self, *words: str) -> None:
        """Run Git in the workspace."""
        subprocess.run(["git", "-C", str(self.project), *words], env=self.variables, check=True)

    def command(self, *words: str | Path) -> list[str]:
        """The argument list of a command of the recorded version."""
        return [self.python, "-P", "-m", "ringfence", *map(str, words)]

    def run(self, *words: str | Path, code: int = 0) -> str:
        """Run a command in the workspace until it ends with this exit code, and return its output."""
        done = subprocess.run(
            self.command(*words),
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != code:
            raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def run_json(self, *words: str | Path, code: int = 0) -> Any:
        """Run a command with `--json`, and return the document that it prints."""
        return json.loads(self.run(*words, "--json", code=code))

    def start(self, *words: str | Path, workspace: Path | None = None) -> None:
        """Start a command in the workspace, and do not wait for its end."""
        subprocess.Popen(
            self.command(*words),
            cwd=workspace or self.project,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.root / "home" / "errors").open("wb"),
        )

    def run_ids(self) -> list[str]:
        """The ids of all runs, the oldest first."""
        return sorted(row["id"] for row in self.run_json("runs", "ls", "-n", "100"))

    def find_program(self, client: str) -> Path:
        """The program of an agent CLI."""
        (found,) = CLIENTS.glob(PROGRAMS[client])
        return found

    @contextmanager
    def scripted_apis(self) -> Iterator[None]:
        """Serve the scripted model as the API of both providers; each prompt carries its own script."""
        command = [self.python, "-P", "-m", "ringfence.testing.scripted_model"]
        with subprocess.Popen(command, env=self.variables, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            self.variables |= {**API_KEYS, "ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}
            yield
            server.terminate()

    def wait_until(self, is_true: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_true():
            if time.monotonic() > deadline:
                errors = (self.root / "home" / "errors").read_text()
                raise SystemExit(f"the condition that the recipe waits for did not come true\n{errors}")
            time.sleep(0.05)

    def kill_all_processes(self) -> None:
        """Kill every process that the recipe started, and all their descendants, at the same moment."""
        if os.getpid() != 1:
            raise SystemExit("a recipe must be the first process of a PID namespace; run `make.py`")
        os.kill(-1, signal.SIGKILL)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def embed_script(task: str, turns: Sequence[Mapping[str, Any]]) -> str:
    """A prompt that carries the script of the model that answers it."""
    return f"{task} <scripted-model>{json.dumps({'turns': turns})}</scripted-model>"
