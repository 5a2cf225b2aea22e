"""Errors as the APIs themselves shape them, so that clients show them and do what is right next."""

import json

from ringfence.egress.gateway.routes import Api, provider_of
from ringfence.errors import LimitReached
from ringfence.secret import Provider

FORBIDDEN, NOT_FOUND, QUOTA, BAD_GATEWAY, UNAVAILABLE = 403, 404, 429, 502, 503

_TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    426: "invalid_request_error",
    431: "request_too_large",
    429: "rate_limit_error",
    502: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OVER = "insufficient_quota"


class Denied(Exception):
    """A request that is answered by us; the text says why.

    Args:
        status: Of the answer.
        reason: One line.
        is_final: Whether asking again is of no use.
    """

    def __init__(self, status: int, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.is_final = is_final


class OverBudget(Denied):
    """The run has used what it may."""

    def __init__(self, provider: Provider, limit: LimitReached) -> None:
        # Measured: the claude CLI gives up at once on 403, codex on 429; each asks again on most others.
        super().__init__(FORBIDDEN if provider == "anthropic" else QUOTA, str(limit))
        self.limit = limit


def error_value(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> dict[str, object]:
    """An error, as JSON has it."""
    kind = _TYPES.get(status, "api_error")
    text = f"ringfence: {reason}"
    if provider == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": text}}
    code = _OVER if is_quota else None
    return {"error": {"message": text, "type": code or kind, "param": None, "code": code}}


def error_body(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> bytes:
    """The JSON of an error."""
    return json.dumps(error_value(provider, status, reason, is_quota=is_quota)).encode()


def error_event(api: Api, reason: str) -> bytes:
    """What ends a stream in the middle, in the stream's own form."""
    provider = provider_of(api)
    if api == "responses":
        error = {"code": _OVER, "message": f"ringfence: {reason}"}
        failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
        return b"event: response.failed\ndata: " + json.dumps(failed).encode() + b"\n\n"
    body = error_body(provider, FORBIDDEN if provider == "anthropic" else QUOTA, reason, is_quota=True)
    return (b"event: error\n" if provider == "anthropic" else b"") + b"data: " + body + b"\n\n"
