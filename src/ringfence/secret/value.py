"""Parses what a source returns into a secret and its expiry. No error here quotes the input."""

import base64
import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen

LIMIT_BYTES = 64 * 1024
"""The most that a source may return."""

_LATEST_S = 253_402_300_799.0  # the end of the year 9999, the last that datetime can represent
_MILLISECONDS_FROM = 1e11


@frozen
class SecretValue:
    """A secret as it was read from its source. Its repr never shows the secret."""

    text: str = field(repr=False)
    expires_at: datetime | None = None
    """In UTC; None: not known."""
    companions: tuple[str, ...] = field(default=(), repr=False)
    """Further secrets that came with it, such as a refresh token; they are redacted like the secret itself."""
    account_id: str = ""
    """The account of a ChatGPT login; otherwise empty."""
    is_key: bool = False
    """Whether a login file held an API key instead of a login."""
    warnings: tuple[str, ...] = ()
    """What the user should know about the place where the secret is kept."""

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
        where: The secret's name and source, for errors.

    Raises:
        AuthenticationFailed: It is empty, too long, more than one line, or not printable text.
    """
    if len(raw) > LIMIT_BYTES:
        raise AuthenticationFailed(f"{where} gives more than {LIMIT_BYTES} bytes; a secret is one line")
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError as exc:
        raise AuthenticationFailed(f"{where} is not UTF-8 text; a secret is one line of text") from exc
    if not text:
        raise AuthenticationFailed(f"{where} gives nothing; put the secret there")
    login = parse_login(text)
    if login is not None:
        return login
    lines = len(text.splitlines())
    if lines > 1:
        raise AuthenticationFailed(
            f"{where} gives {lines} lines; a secret is one line, so let it give that alone"
        )
    if not text.isprintable():
        raise AuthenticationFailed(f"{where} gives control characters; a secret is one line of text")
    return SecretValue(text, jwt_expiry(text))


def parse_login(text: str) -> SecretValue | None:
    """The token in the JSON of an OAuth credential file, or None if `text` is no such file.

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
    """The `exp` claim of a JSON web token; None if it is no such token or has none. Nothing is verified."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LIMIT_BYTES:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return _moment(claims.get("exp")) if isinstance(claims, dict) else None


def _moment(number: object) -> datetime | None:
    """The time that a number means: seconds since 1970, or milliseconds where it is too large for seconds."""
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
