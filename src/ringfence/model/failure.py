"""What a failed request means: one table from what was seen to what to do next."""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from ringfence.frozen import frozen
from ringfence.model.assembly import BrokenStream, StreamedError

FailureKind = Literal["transient", "final", "authentication", "context", "refused"]
"""Ask again; do not ask again though the request is fine; give a credential; shorten it; mend the request."""

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
"""platform.claude.com, "Errors": types of errors and their HTTP status. In a stream only the type comes."""

_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
_CREDENTIAL_AT_FAULT = frozenset({401, 402, 403})
_OUT_OF_CREDIT = ("credit balance is too low",)
"""Words of the 400 for an account that is to be paid for first; it has no code of its own."""

_TOO_LONG = ("prompt is too long", "exceed context limit", "context window")
"""Words of the 400 for a conversation that does not fit; it has no code of its own (anthropic 2.11)."""


_ASKED_WRONGLY = frozenset({400, 404, 422})
"""Refused whatever was said before; 413 is about the conversation."""


@frozen
class Failure:
    """One failed attempt, classified."""

    kind: FailureKind
    reason: str
    status: int | None = None
    retry_after_s: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether the API refuses how it is asked, and not what the conversation came to."""
        return self.kind == "refused" and self.status in _ASKED_WRONGLY


def status_failure(
    status: int, *, error_type: str | None, message: str, headers: Mapping[str, str], now: datetime
) -> Failure:
    """Classify an HTTP status or an error event.

    Args:
        status: The HTTP status.
        error_type: `error.type` of the body, if there is one.
        message: `error.message` of the body, or the start of the body.
        headers: Of the response; names in lower case.
        now: To count from where `retry-after` is a date.
    """
    reason = f"{status} {error_type or 'error'}: {message}"
    if status in _CREDENTIAL_AT_FAULT or (status == 400 and is_out_of_credit(message)):
        return Failure("authentication", reason, status)
    if status in _WORTH_ANOTHER_TRY or status >= 500:
        kind: FailureKind = "final" if headers.get("x-should-retry") == "false" else "transient"
        return Failure(kind, reason, status, retry_after_s(headers, now))
    if status == 400 and is_too_long(message):
        return Failure("context", reason, status)
    return Failure("refused", reason, status)


def is_too_long(message: str) -> bool:
    """Whether a 400 says that the conversation does not fit the model's window."""
    return any(words in message.lower() for words in _TOO_LONG)


def is_out_of_credit(message: str) -> bool:
    """Whether a 400 says that the account has no credit left."""
    return any(words in message.lower() for words in _OUT_OF_CREDIT)


def retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds that `retry-after-ms` or `retry-after` (seconds or an HTTP date) asks for; None without one."""
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


def failure_of(exc: Exception, now: datetime) -> Failure | None:
    """Classify what an attempt raised; None for what is not about the model."""
    import anthropic
    import httpx2

    if isinstance(exc, anthropic.APIStatusError):
        return status_failure(
            exc.status_code,
            error_type=exc.type,
            message=exc.api_message or str(exc.body or "no message"),
            headers=exc.response.headers,
            now=now,
        )
    if isinstance(exc, StreamedError):
        status = _STATUS_OF_ERROR_TYPE.get(exc.error_type, 500)
        return status_failure(status, error_type=exc.error_type, message=exc.message, headers={}, now=now)
    if isinstance(exc, BrokenStream):
        return Failure("transient", str(exc))
    if isinstance(exc, anthropic.APIConnectionError | httpx2.HTTPError | httpx2.StreamError):
        return _connection_failure(exc)
    if isinstance(exc, UnicodeEncodeError):
        return Failure("refused", f"the conversation holds text that is not Unicode: {exc.reason}")
    return None


def _connection_failure(exc: BaseException) -> Failure:
    causes = _causes(exc)
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return Failure(
            "final", f"its certificate is not trusted ({causes[-1]}); SSL_CERT_FILE names your own"
        )
    deepest = causes[-1]
    return Failure(
        "transient", f"the connection failed: {type(deepest).__name__}: {str(deepest) or str(exc)}"
    )


def _causes(exc: BaseException) -> list[BaseException]:
    chain = [exc]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else None
    except ValueError:
        return None
    return number if number is not None and 0.0 <= number < 1e9 else None
