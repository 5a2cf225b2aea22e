"""Requests that the gateway rejects, and errors in the shape of the APIs', so that clients show and handle them."""

import json

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
_QUOTA_CODE = "insufficient_quota"


class Rejected(Exception):
    """A request that the gateway answers itself; the text is the reason, in one line.

    Args:
        status: The HTTP status of the response.
        reason: Why.
        is_final: Whether a retry is useless.
    """

    def __init__(self, status: int, reason: str, *, is_final: bool = True) -> None:
        super().__init__(reason)
        self.status = status
        self.is_final = is_final


class OverBudget(Rejected):
    """The run has reached a limit."""

    def __init__(self, provider: Provider, limit: LimitReached) -> None:
        # Measured: the claude CLI gives up at once on 403, codex on 429; each retries most others.
        super().__init__(FORBIDDEN if provider == "anthropic" else QUOTA, str(limit))
        self.limit = limit


def error_value(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> dict[str, object]:
    """The JSON value of an error."""
    kind = _TYPES.get(status, "api_error")
    text = f"ringfence: {reason}"
    if provider == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": text}}
    code = _QUOTA_CODE if is_quota else None
    return {"error": {"message": text, "type": code or kind, "param": None, "code": code}}


def error_body(provider: Provider, status: int, reason: str, *, is_quota: bool = False) -> bytes:
    """The body of an error response."""
    return json.dumps(error_value(provider, status, reason, is_quota=is_quota)).encode()


def limit_event(provider: Provider, reason: str, *, is_responses_api: bool) -> bytes:
    """The event that ends a stream at a limit, in the form of the stream's API."""
    if is_responses_api:
        error = {"code": _QUOTA_CODE, "message": f"ringfence: {reason}"}
        failed = {"type": "response.failed", "response": {"status": "failed", "error": error}}
        return b"event: response.failed\ndata: " + json.dumps(failed).encode() + b"\n\n"
    body = error_body(provider, FORBIDDEN if provider == "anthropic" else QUOTA, reason, is_quota=True)
    return (b"event: error\n" if provider == "anthropic" else b"") + b"data: " + body + b"\n\n"
