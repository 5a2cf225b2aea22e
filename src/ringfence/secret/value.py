"""From the bytes that a source gave to a secret, and when it ends. No error here shows what the bytes were."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen

LIMIT_BYTES = 64 * 1024
"""Of what a source may give."""

_LATEST_S = 253_402_300_799.0  # the end of the year 9999, beyond which no datetime goes
_MILLISECONDS_FROM = 1e11


@frozen
class SecretValue:
    """A secret, at one moment. Its text never shows it."""

    text: str = field(repr=False)
    expires_at: datetime | None = None
    """In UTC; None: not known."""
    beside: tuple[str, ...] = field(default=(), repr=False)
    """Further secrets that came with it, such as a refresh token: to be redacted like the secret itself."""
    account_id: str = ""
    """Of a ChatGPT login; else empty."""
    is_key: bool = False
    """Whether a login file held an API key instead of a login."""
    warnings: tuple[str, ...] = ()
    """What the user should be told about the place where it is kept."""

    def ends_within(self, margin: timedelta, now: datetime) -> bool:
        """Whether it is known to end before `margin` is over."""
        return self.expires_at is not None and self.expires_at <= now + margin


def read_value(raw: bytes, where: str) -> SecretValue:
    """What the bytes of a source say: a line, or an OAuth credential file's JSON.

    Args:
        raw: What the source gave.
        where: For errors: the secret's name and its source.

    Raises:
        AuthenticationFailed: There is nothing, too much, more than one line, or what no text can hold.
    """
    if len(raw) > LIMIT_BYTES:
        raise AuthenticationFailed(f"{where} gives more than {LIMIT_BYTES} bytes; a secret is one line")
    try:
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError as exc:
        raise AuthenticationFailed(
            f"{where} gives what is no UTF-8 text; a secret is one line of text"
        ) from exc
    if not text:
        raise AuthenticationFailed(f"{where} gives nothing; put the secret there")
    login = read_login(text)
    if login is not None:
        return login
    if len(text.splitlines()) > 1:
        lines = len(text.splitlines())
        raise AuthenticationFailed(
            f"{where} gives {lines} lines; a secret is one line, so let it give that alone"
        )
    if not text.isprintable():
        raise AuthenticationFailed(f"{where} gives control characters; a secret is one line of text")
    return SecretValue(text, jwt_expiry(text))


def read_login(text: str) -> SecretValue | None:
    """The token in the JSON of an OAuth credential file; None if it is no such file.

    Known are the file of Claude's CLI (`claudeAiOauth`) and the plain answer of a token endpoint.
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
    beside = [_text(fields, name) for name in ("refreshToken", "refresh_token", "idToken", "id_token")]
    return SecretValue(token, _said_expiry(fields) or jwt_expiry(token), tuple(one for one in beside if one))


def jwt_expiry(token: str) -> datetime | None:
    """When a JSON web token ends by its `exp`; None if it is no such token or does not say. Nothing is verified."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > LIMIT_BYTES:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return moment(claims.get("exp")) if isinstance(claims, dict) else None


def moment(number: object) -> datetime | None:
    """The time that a number means: seconds since 1970, or milliseconds where it is too large for seconds."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        seconds = float(number) / 1000 if number > _MILLISECONDS_FROM else float(number)
    except OverflowError:
        return None
    return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < _LATEST_S else None


def _said_expiry(fields: Mapping[str, Any]) -> datetime | None:
    for name in ("expiresAt", "expires_at", "expiry", "expires"):
        value = fields.get(name)
        found = moment(value) or (_iso(value) if isinstance(value, str) else None)
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
