"""The agent CLI of `double.py`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.runtime import Task
from ringfence.runtime.agent_cli.base import AgentCli, CliPaths, Launch, Output
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.options import Options

SOURCE = Path(__file__).with_name("double.py").read_text()


def asked(*steps: Sequence[Any]) -> str:
    """A prompt of steps."""
    return json.dumps(steps)


class FakeCli(AgentCli):
    """Starts `double.py`."""

    name = "claude"
    title = "the fake client"
    provider = "anthropic"
    tested = ("1", "1")
    install = "it is here"
    folder = ".fake"
    session_files = ()

    def __init__(self, **files: bytes) -> None:
        self.files = files

    def check(self, prompt: str, options: Options) -> None:
        """All is well."""

    def check_interactive(self, args: Sequence[str]) -> None:
        """All is well."""

    def launch(self, task: Task, paths: CliPaths) -> Launch:
        """The prompt by stdin."""
        files = {f"{paths.home}/{name}": data for name, data in self.files.items()}
        return Launch(
            argv=(paths.program, "-I", "-c", SOURCE),
            env={"FAKE": "1"},
            files=files,
            stdin=task.prompt.encode(),
        )

    def interactive(self, paths: CliPaths, args: Sequence[str], options: Options) -> Launch:
        """As it is."""
        return Launch(argv=(paths.program, *args))

    def output(self) -> Output:
        """What reads it: it prints what claude does."""
        return ClaudeCli().output()
