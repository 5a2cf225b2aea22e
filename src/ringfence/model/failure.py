"""Classifies failed requests to the API, and says when a request is sent again."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from ringfence.egress.http.client import UpstreamError
from ringfence.frozen import frozen
from ringfence.model.stream import ApiError, BrokenStream

FailureKind = Literal["transient", "final", "authentication", "context", "refused"]
"""`transient`: send the request again. `final`: the request is good, but do not send it again. `authentication`: provide
another credential. `context`: shorten the conversation. `refused`: correct the request."""

_STATUS_OF_ERROR_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status of each type of error (platform.claude.com, "Errors"). An error in a stream has only a type."""

_RETRIABLE = frozenset({408, 409, 425, 429})
_CREDENTIAL_REJECTED = frozenset({401, 402, 403})
_OUT_OF_CREDIT = ("credit balance is too low",)
"""A part of the message of the 400 for an account without credit, which has no code of its own."""

_TOO_LONG = ("prompt is too long", "exceed context limit", "context window")
"""Parts of the messages of the 400 for a conversation that is too long, which has no code of its own (2026-11)."""

_INVALID_REQUEST = frozenset({400, 404, 422})
"""Statuses of requests that are invalid whatever the conversation holds; 413 is about the conversation."""


@frozen
class RetryPolicy:
    """Deadlines and retries of one `Model.reply`. All times in seconds."""

    attempts: int = 8
    """The maximum number of requests, the first included."""
    total_s: float = 900.0
    """No attempt starts later than this after the first; an attempt that has started may take `reply_s`."""
    first_byte_s: float = 300.0
    """The limit from the request to the first event; a local server may first read a long prompt."""
    idle_s: float = 90.0
    """The limit between two events of a stream; the API sends pings more often."""
    reply_s: float = 1800.0
    """The limit for one whole attempt."""
    backoff_s: float = 0.5
    """The first wait if the server names none; it doubles with each attempt."""
    backoff_limit_s: float = 30.0

    def wait_s(
        self, failed_attempts: int, *, retry_after_s: float | None, jitter: Callable[[], float]
    ) -> float:
        """Return how long to wait before the next attempt.

        Args:
            failed_attempts: The number of failed attempts, at least 1.
            retry_after_s: The server's `retry-after`, which is kept exactly.
            jitter: Returns a number in [0, 1), so that clients that failed together do not retry together.
        """
        if retry_after_s is not None:
            return retry_after_s
        full = min(self.backoff_s * 2.0 ** min(failed_attempts - 1, 32), self.backoff_limit_s)
        return full * (0.5 + 0.5 * jitter())


@frozen
class Failure:
    """One failed attempt, classified."""

    kind: FailureKind
    reason: str
    status: int | None = None
    retry_after_s: float | None = None

    @property
    def is_invalid_request(self) -> bool:
        """Whether the API rejects the request itself, and not the length of the conversation."""
        return self.kind == "refused" and self.status in _INVALID_REQUEST


def classify_failure(exc: Exception, now: datetime) -> Failure | None:
    """Classify the exception of an attempt; return None for an exception that is not about the model.

    Args:
        exc: The exception.
        now: The start of the wait if `retry-after` is a date.
    """
    match exc:
        case ApiError():
            return _classify_error(exc, now)
        case BrokenStream():
            return Failure("transient", str(exc))
        case UpstreamError():
            return Failure("final" if exc.is_final else "transient", f"the connection failed: {exc}")
    return None


def _classify_error(error: ApiError, now: datetime) -> Failure:
    status = error.status or _STATUS_OF_ERROR_TYPE.get(error.error_type or "", 500)
    reason = f"{status} {error.error_type or 'error'}: {error.message}"
    if status in _CREDENTIAL_REJECTED or (status == 400 and is_out_of_credit(error.message)):
        return Failure("authentication", reason, status)
    if status in _RETRIABLE or status >= 500:
        kind: FailureKind = "final" if error.headers.get("x-should-retry") == "false" else "transient"
        return Failure(kind, reason, status, retry_after_s(error.headers, now))
    if status == 400 and is_too_long(error.message):
        return Failure("context", reason, status)
    return Failure("refused", reason, status)


def is_too_long(message: str) -> bool:
    """Return whether the message of a 400 means that the conversation does not fit the model's window."""
    return any(words in message.lower() for words in _TOO_LONG)


def is_out_of_credit(message: str) -> bool:
    """Return whether the message of a 400 means that the account has no credit left."""
    return any(words in message.lower() for words in _OUT_OF_CREDIT)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the wait that `retry-after-ms` or `retry-after` (seconds or an HTTP date) requests; None without one."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    seconds = _number(text)
    if seconds is not None or text is None:
        return seconds
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0.0 <= number < 1e9 else None
