"""Parses the output of a source into a secret and its expiry. No error message quotes the input."""

import base64
import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen

LIMIT_BYTES = 64 * 1024
"""The largest output of a source that is accepted."""

_LATEST_S = 253_402_300_799.0  # the end of the year 9999, the last that datetime can represent
_MILLISECONDS_FROM = 1e11


@frozen
class SecretValue:
    """A secret as it was read from its source. Its repr never shows the secret."""

    text: str = field(repr=False)
    expires_at: datetime | None = None
    """The time of expiry in UTC; None if it is not known."""
    companions: tuple[str, ...] = field(default=(), repr=False)
    """Further secrets that came with it, such as a refresh token; they are redacted like the secret itself."""
    account_id: str = ""
    """The account id of a ChatGPT login; empty for other secrets."""
    is_key: bool = False
    """Whether a login file held an API key instead of a login."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user about the source of the secret, such as a file that others can read."""

    @property
    def all_texts(self) -> tuple[str, ...]:
        """The secret and its companions: everything that must not be recorded."""
        return (self.text, *self.companions)

    def expires_within(self, margin: timedelta, now: datetime) -> bool:
        """Whether it is known to expire before `margin` has passed."""
        return self.expires_at is not None and self.expires_at <= now + margin


def parse_value(raw: bytes, where: str) -> SecretValue:
    """Parse the output of a source: one line of text, or the JSON of an OAuth credential file.

    Args:
        raw: The output.
        where: The secret's name and source, for error messages.

    Raises:
        AuthenticationFailed: The output is empty, too long, more than one line, or not printable text.
    """
    if len(raw) > LIMIT_BYTES:
        raise AuthenticationFailed(f"{where} returned more than {LIMIT_BYTES} bytes; a secret is one line")
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError as exc:
        raise AuthenticationFailed(f"{where} is not UTF-8 text; a secret is one line of text") from exc
    if not text:
        raise AuthenticationFailed(f"{where} is empty; put the secret there")
    login = parse_login(text)
    if login is not None:
        return login
    lines = len(text.splitlines())
    if lines > 1:
        raise AuthenticationFailed(
            f"{where} returned {lines} lines; a secret is one line, so let the source return only that"
        )
    if not text.isprintable():
        raise AuthenticationFailed(f"{where} contains control characters; a secret is one line of text")
    return SecretValue(text, jwt_expiry(text))


def parse_login(text: str) -> SecretValue | None:
    """Return the token in the JSON of an OAuth credential file; None if `text` is not such a file.

    Recognizes the file of Claude's CLI (`claudeAiOauth`) and the plain response of a token endpoint.
    """
    if not text.startswith("{"):
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    claude = document.get("claudeAiOauth")
    fields = claude if isinstance(claude, Mapping) else document
    token = _text(fields, "accessToken") or _text(fields, "access_token")
    if token is None:
        return None
    found = [_text(fields, name) for name in ("refreshToken", "refresh_token", "idToken", "id_token")]
    companions = tuple(companion for companion in found if companion)
    return SecretValue(token, _declared_expiry(fields) or jwt_expiry(token), companions)


def jwt_expiry(token: str) -> datetime | None:
    """Return the `exp` claim of a JSON web token, which is not verified; None if there is no such token or claim."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LIMIT_BYTES:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return _moment(claims.get("exp")) if isinstance(claims, dict) else None


def _moment(number: object) -> datetime | None:
    """Convert a number to a time: seconds since 1970, or milliseconds if it is too large for seconds."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        seconds = float(number) / 1000 if number > _MILLISECONDS_FROM else float(number)
    except OverflowError:
        return None
    return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < _LATEST_S else None


def _declared_expiry(fields: Mapping[str, Any]) -> datetime | None:
    for name in ("expiresAt", "expires_at", "expiry", "expires"):
        value = fields.get(name)
        found = _moment(value) or (_iso(value) if isinstance(value, str) else None)
        if found is not None:
            return found
    return None


def _iso(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) and value else None
