"""Determines from the output of codex how it ended. Observed with 0.169.0."""

import re

import msgspec

from ringfence.egress.gateway.response_reader import verdict_of_body
from ringfence.events import JSONObject
from ringfence.runtime.agent_cli.exit_status import (
    Ended,
    Ending,
    Report,
    bounded,
    ending_of_code,
    ending_of_status,
    one_line,
)
from ringfence.runtime.codex.transcript import RETRY_STATUS
from ringfence.runtime.transcript.record import is_deep
from ringfence.runtime.transcript.translator import dict_of, text_of

_NO_NAMESPACE = ("No permissions to create a new namespace", "execvp codex-linux-sandbox")
"""The output of codex's own sandbox if it cannot be created."""
_TEXTS = (
    (Ending.CONTEXT, re.compile(r"context window|context_length_exceeded", re.IGNORECASE)),
    (Ending.QUOTA, re.compile(r"^quota exceeded|exceeded your current quota|usage limit", re.IGNORECASE)),
    (Ending.AUTHENTICATION, re.compile(r"Missing environment variable|not logged in", re.IGNORECASE)),
    (Ending.API, re.compile(r"disconnected|retry limit|error sending|timed? ?out", re.IGNORECASE)),
)
"""Texts of failures in which no request reached an API, and for which codex has no code."""


class CodexReport(Report):
    """Collects codex's last message, and whether its commands could run."""

    cli = "codex"

    def __init__(self) -> None:
        self._commands = 0
        self._commands_without_sandbox = 0
        """Commands that never ran, as codex could not create its own sandbox."""

    def take(self, value: JSONObject) -> None:
        """Note one record of the output."""
        kind, item = value.get("type"), dict_of(value.get("item"))
        if kind == "thread.started":
            self.note_session(value.get("thread_id"))
        elif kind == "turn.started":
            self.final = None
        elif kind == "turn.failed":
            self.final = value
        elif kind == "turn.completed":
            self.final = value
            self.structured_output = _parsed(self.final_text)
        elif kind == "item.completed" and item.get("type") == "agent_message":
            self.final_text = text_of(item.get("text")) or self.final_text
        elif kind == "item.completed" and item.get("type") == "command_execution":
            self._commands += 1
            printed = bounded(item.get("aggregated_output"))
            failed = item.get("status") == "failed"
            self._commands_without_sandbox += failed and any(text in printed for text in _NO_NAMESPACE)

    @property
    def is_success(self) -> bool:
        """Whether the last turn was completed."""
        return self.final is not None and self.final.get("type") == "turn.completed"

    @property
    def has_worked(self) -> bool:
        """Whether a command ended."""
        return self._commands > 0

    @property
    def message(self) -> str:
        """The message of the last turn's error."""
        return bounded(dict_of((self.final or {}).get("error")).get("message"))

    @property
    def api_status(self) -> int | None:
        """The HTTP status in the error's text."""
        found = RETRY_STATUS.search(one_line(self.message))
        return int(found[1]) if found is not None else None

    def contradict_success(self) -> Ended | None:
        """Return the ending if no command ran because codex could not create its own sandbox."""
        if not self._commands or self._commands_without_sandbox < self._commands:
            return None
        reason = "codex could not make its own sandbox, so no command ran; turn it off inside a sandbox"
        return Ended(Ending.NO_INNER_SANDBOX, reason)

    def api_failure(self) -> Ending | None:
        """Return the failure by the response's body in the error's text, else by a status or words there."""
        message = one_line(self.message)
        known = ending_of_code(verdict_of_body(message.encode("utf-8", "replace")).error)
        if known is not None:
            return known
        if self.api_status is not None:
            return ending_of_status(self.api_status)
        return next((ending for ending, pattern in _TEXTS if pattern.search(message)), None)


def _parsed(text: str) -> object:
    """Return the answer as JSON; None if it is not JSON, or nested too deeply for the record to be read back."""
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, dict | list) and is_deep(value) else value
