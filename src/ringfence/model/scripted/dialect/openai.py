"""What the two APIs of OpenAI have in common: errors, headers, and how they count tokens."""

from typing import ClassVar, Final

from ringfence.model.scripted.dialect.base import Dialect, Refusal
from ringfence.model.scripted.script import JSONObject

CREATED: Final = 1_767_225_600
"""The hour of all replies, so that each is the same every time: 2026-01-01."""

_ERROR_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


class OpenAIDialect(Dialect):
    """An API of OpenAI's."""

    request_id_header: ClassVar[str] = "x-request-id"
    call_prefix: ClassVar[str] = "call"

    def error_body(self, refusal: Refusal, request_id: str) -> JSONObject:  # noqa: ARG002  # in a header only
        """The same shape in all errors."""
        return {
            "error": {
                "message": refusal.message,
                "type": refusal.type or _error_type(refusal.status),
                "param": refusal.param,
                "code": refusal.code or _ERROR_CODES.get(refusal.status),
            }
        }


def _error_type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def call_input(arguments: JSONObject) -> str | None:
    """The text for a tool that takes text; None if the arguments are not one text called `input`."""
    text = arguments.get("input")
    return text if isinstance(text, str) and len(arguments) == 1 else None
