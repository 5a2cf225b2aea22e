"""What of a client's output tells how it ended. The output comes from inside: any of it may be anything."""

from dataclasses import dataclass
from typing import Any, Literal

ClientName = Literal["claude", "codex"]
JSONObject = dict[str, Any]

_NO_NAMESPACE = ("No permissions to create a new namespace", "execvp codex-linux-sandbox")
"""What codex's own sandbox prints where it cannot be made."""
_SHOWN = 500


@dataclass
class Seen:
    """What was seen so far."""

    final: JSONObject | None = None
    """The last message that ends a turn: `result` of claude, `turn.completed` or `turn.failed` of codex."""
    fault: str = ""
    """What claude calls the error that its last answer stands for: `rate_limit`, `server_error`, ..."""
    commands: int = 0
    """Commands of codex that ended."""
    commands_without_sandbox: int = 0
    """Those of them that never ran, as its own sandbox could not be made."""

    def take(self, client: ClientName, line: object) -> None:
        """Note one line, parsed; None or anything else that is no object if it could not be."""
        if not isinstance(line, dict):
            return
        if client == "claude":
            self._take_claude(line)
        else:
            self._take_codex(line)

    def _take_claude(self, line: JSONObject) -> None:
        if line.get("type") == "result":
            self.final = line
        elif line.get("type") == "assistant":
            self.fault = text_of(line.get("error"))
            self.final = None
        elif line.get("type") == "system" and line.get("subtype") == "init":
            self.final = None  # a result is not the end: work in the background may begin another turn

    def _take_codex(self, line: JSONObject) -> None:
        kind, item = line.get("type"), line.get("item")
        if kind in ("turn.completed", "turn.failed"):
            self.final = line
        elif kind == "turn.started":
            self.final = None
        elif kind == "item.completed" and isinstance(item, dict) and item.get("type") == "command_execution":
            self.commands += 1
            printed = text_of(item.get("aggregated_output"))
            failed = item.get("status") == "failed"
            self.commands_without_sandbox += failed and any(words in printed for words in _NO_NAMESPACE)


def text_of(value: object) -> str:
    """A text of hostile origin, bounded; empty if it is none."""
    return value[:_SHOWN] if isinstance(value, str) else ""
