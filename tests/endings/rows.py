"""The rows of `table.yaml`, read: one way to end each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

RUNTIMES = ("api", "claude-cli", "claude-sdk", "codex-cli")
FILE = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True)
class Expected:
    """How a run is to end."""

    state: str
    reason: str = ""
    """Words of the reason."""
    exit_code: int | None = None
    """Where it is not that of the state."""


@dataclass(frozen=True)
class Row:
    """One way to end, for all runtimes."""

    happens: str
    model: list[Any]
    request: Mapping[str, Any] = field(default_factory=dict)
    ends: Mapping[str, Any] = field(default_factory=dict)
    quick: tuple[str, ...] = RUNTIMES
    """The runtimes with which it is in `make test`."""

    def expected(self, runtime: str) -> Expected | str:
        """How a run with a runtime is to end; a text says why it cannot."""
        found = self.ends.get(runtime, self.ends["all"])
        if isinstance(found, dict):
            return str(found["na"])
        return Expected(found) if isinstance(found, str) else Expected(*found)

    def is_full(self, runtime: str) -> bool:
        """Whether it is left to `make test-rest` with a runtime.

        The Agent SDK runs the program that `claude-cli` runs: a row in which both end the same is tried with one.
        """
        return runtime not in self.quick or (
            runtime == "claude-sdk" and self.expected(runtime) == self.expected("claude-cli")
        )


def read_rows() -> list[Row]:
    """All of them, in their order."""
    return [Row(**row) for row in YAML(typ="safe").load(FILE.read_text())]
