"""Determines from the output of claude how it ended. Observed with 2.1.197, 2.1.329 and 2.1.330."""

from ringfence.events import JSONObject
from ringfence.runtime.agent_cli.exit_status import (
    Ended,
    Ending,
    Report,
    bounded,
    ending_of_status,
    one_line,
)
from ringfence.runtime.claude.transcript import sub_agent_of
from ringfence.runtime.transcript.translator import dict_of, list_of, text_of, texts_of

_MAX_DENIED = 100
_SUBTYPES = {
    "error_max_turns": Ending.LIMIT,
    "error_max_budget_usd": Ending.LIMIT,
    "error_max_structured_output_retries": Ending.NO_STRUCTURED_OUTPUT,
}
_TOO_LONG = ("prompt_too_long", "blocking_limit")
"""Terminal reasons: the API rejects the conversation as too long, or claude does not send it."""
_FAULTS = {
    "authentication_failed": Ending.AUTHENTICATION,
    "billing_error": Ending.QUOTA,
    "model_not_found": Ending.REQUEST,
    "invalid_request": Ending.REQUEST,
    "rate_limit": Ending.API,
    "server_error": Ending.API,
}


class ClaudeReport(Report):
    """Collects claude's last message and its errors."""

    cli = "claude"

    def __init__(self) -> None:
        self._fault = ""
        """Claude's name of the error that its last answer represents: `rate_limit`, `server_error`, ..."""

    def take(self, value: JSONObject) -> None:
        """Note one record of the output."""
        self.note_session(value.get("session_id"))
        if value.get("type") == "result":
            self.final = value
            self.final_text = text_of(value.get("result")) or self.final_text
            self.structured_output = value.get("structured_output", self.structured_output)
        elif value.get("type") == "assistant":
            self.final = None
            self._fault = bounded(value.get("error"))
            if not sub_agent_of(value):
                self.final_text = texts_of(dict_of(value.get("message")).get("content")) or self.final_text
        elif value.get("type") == "system" and value.get("subtype") == "init":
            self.final = None  # a result is not the end, as work in the background may begin another turn

    @property
    def is_success(self) -> bool:
        """Whether the last message is a success without an error of the API."""
        is_failure = self._final.get("is_error") is True or self._final.get("api_error_status")
        return self._final.get("subtype") == "success" and not is_failure

    @property
    def has_worked(self) -> bool:
        """Whether claude reported an error of the API."""
        return bool(self._fault)

    @property
    def message(self) -> str:
        """The last message's text, or its first error."""
        errors = list_of(self._final.get("errors"))
        return bounded(self._final.get("result")) or bounded(errors[0] if errors else "")

    @property
    def api_status(self) -> int | None:
        """The HTTP status that the last message names."""
        status = self._final.get("api_error_status")
        return status if isinstance(status, int) else None

    def contradict_success(self) -> Ended | None:
        """Return the ending if claude made no request to a model, or was denied a tool."""
        if self._final.get("num_turns") == 0:
            words = one_line(bounded(self._final.get("result"))) or "it printed no answer"
            return Ended(Ending.UNASKED, f"claude took the task for a command of its own: {words}")
        if list_of(self._final.get("permission_denials")):
            tools = ", ".join(sorted(self.denied_tools)) or "a tool"
            return Ended(Ending.DENIED, one_line(f"claude was not permitted to use {tools}"))
        return None

    def own_failure(self) -> Ending | None:
        """Return the ending if the last message names a limit, or a conversation that is too long, in a field."""
        if self._final.get("terminal_reason") in _TOO_LONG:
            return Ending.CONTEXT
        return _SUBTYPES.get(bounded(self._final.get("subtype")))

    def api_failure(self) -> Ending | None:
        """Return the error of the API by claude's name for it, or by the status."""
        if self._fault in _FAULTS:
            return _FAULTS[self._fault]
        status = self.api_status
        if status is not None and 400 <= status < 600:
            return ending_of_status(status)
        return Ending.API if self._final.get("terminal_reason") == "api_error" else None

    @property
    def denied_tools(self) -> tuple[str, ...]:
        """The tools that the last message lists as denied, each once."""
        denials = list_of(self._final.get("permission_denials"))
        names = (bounded(each.get("tool_name")) for each in denials if isinstance(each, dict))
        return tuple(dict.fromkeys(name for name in names if name))[:_MAX_DENIED]

    @property
    def _final(self) -> JSONObject:
        return self.final or {}
