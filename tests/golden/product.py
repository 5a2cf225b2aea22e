"""The product as a command line, applied to a golden directory."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from tests import forked

from .cases import read_facts

PYTHON = os.environ.get("PROMISES_PYTHON", sys.executable)
"""The interpreter whose `ringfence` is tested. Commands of the one that runs the tests are forked (`tests.forked`)."""
TIMEOUT_S = 100.0

COMMANDS: dict[str, str] = {
    "runs show": "runs logs",
    "agents ls": "fleet agents ls",
    "agents enable": "fleet agents enable",
    "secrets ls": "config secrets ls",
    "schedules ls": "fleet schedules ls",
    "schedules resume": "fleet schedules resume",
    "loop clean": "loop rm",
    "pool status": "sandbox pool status",
    "sandbox inspect": "sandbox show",
    "trust": "config trust",
    "policy show": "config policy show",
}
"""The tests' name of a command, and the product's, where these differ."""

UNSUPPORTED: dict[tuple[str, str], str] = {}
"""Commands that cannot read a case any more, and the newest version that can: `("fleet", "fleet up"): "0.2"`.

Such a command must refuse with one of `REFUSALS` and exactly one line, which names that version.
"""
REFUSALS = frozenset({1, 2, 75, 78})


@dataclass(frozen=True)
class Completed:
    """The end of a command."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The output as one JSON document."""
        return json.loads(self.stdout)

    @property
    def json_lines(self) -> list[Any]:
        """The output as one JSON document per line."""
        return [json.loads(line) for line in self.stdout.splitlines()]


@dataclass(frozen=True)
class Golden:
    """An unpacked golden directory.

    Args:
        case: Its name.
        root: Where it is.
    """

    case: str
    root: Path

    @property
    def facts(self) -> Mapping[str, Any]:
        """The ids and states that its recipe noted."""
        return read_facts(self.case)

    @property
    def project(self) -> Path:
        """The workspace."""
        return self.root / "project"

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.root / "state"

    def run(
        self,
        command: str,
        *arguments: str | Path,
        code: int = 0,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Completed:
        """Run a command in the workspace; it must end with this exit code.

        Skips the test after the check of the refusal if the command cannot read the case (`UNSUPPORTED`).

        Args:
            command: Its name in the tests (`COMMANDS`).
            arguments: Its options and arguments.
            code: The expected exit code.
            variables: Additional environment variables.
        """
        words = [*COMMANDS.get(command, command).split(), *map(str, arguments)]
        line = [PYTHON, "-m", "ringfence", *words]
        options: dict[str, Any] = {
            "cwd": self.project,
            "env": {**self._variables(), **variables},
            "stdin": subprocess.DEVNULL,
            "timeout": TIMEOUT_S,
        }
        if sys.executable == PYTHON:
            done = forked.run(line, **options)
        else:
            line.insert(1, "-P")
            done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
        completed = Completed(tuple(words), done.returncode, done.stdout, done.stderr)
        if version := UNSUPPORTED.get((self.case, command)):
            assert_refusal(completed, version)
            pytest.skip(completed.stderr.strip())
        assert completed.code == code, completed
        return completed

    def events(self, run: str) -> list[dict[str, Any]]:
        """The events of a record, as the product shows them."""
        return self.run("runs show", run, "--json").json_lines

    def write_script(self, document: Mapping[str, Any]) -> str:
        """Write a script for the scripted model, and return the value of `--model` that selects it."""
        file = self.root / "test-script.yaml"
        file.write_text(json.dumps({"price": {"input": 1, "output": 1}, **document}))
        return f"scripted:{file}"

    def _variables(self) -> dict[str, str]:
        directories = {
            "HOME": "home",
            "RINGFENCE_STATE_DIR": "state",
            "CLAUDE_CONFIG_DIR": "claude",
            "CODEX_HOME": "codex",
            "XDG_CACHE_HOME": "cache",
            "XDG_CONFIG_HOME": "config",
        }
        return {
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TERM": "dumb",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            **{name: str(self.root / directory) for name, directory in directories.items()},
        }


def assert_refusal(completed: Completed, version: str) -> None:
    """Check that a command refuses old state as it must: without output, and with one line that names the version."""
    assert completed.code in REFUSALS, completed
    assert not completed.stdout, completed
    lines = completed.stderr.strip().splitlines()
    assert len(lines) == 1, completed
    assert re.search(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)", lines[0]), completed
