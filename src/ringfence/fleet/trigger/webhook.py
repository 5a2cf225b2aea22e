"""Verifies the signature of a webhook request and parses its body. Pure functions."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ringfence.fleet.trigger.payload import Payload, WebhookRefused, read_payload

LIMIT_BYTES: Final = 1024 * 1024
"""The size limit of a body."""
_WINDOW_S: Final = 300.0
"""The largest difference between a signed time and now."""
_HEADERS: Final = {"github": "X-Hub-Signature-256", "stripe": "Stripe-Signature"}
_GITHUB: Final = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_TIME: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_MAX_SIGNATURE: Final = 4096
_MAX_SIGNATURES: Final = 16

Style = Literal["github", "stripe"]
Headers = Sequence[tuple[str, str]]
"""Name and value of each header line."""


@dataclass(frozen=True)
class Delivery:
    """An accepted request."""

    signed_hash: str
    """SHA-256 of everything that is signed, the time included where one is. Deliveries with the same hash are one
    delivery; a key sent beside the body would not be signed."""
    payload: Payload


def receive(
    secret: bytes, style: Style, headers: Headers, body: bytes, *, now: datetime | None = None
) -> Delivery:
    """Verify a request and parse its body.

    Args:
        secret: The key of the signature.
        style: `github`: the body is signed, `sha256=...`. `stripe`: the time and the body are, `t=...,v1=...`.
        headers: All headers of the request.
        body: The whole body; stop reading beyond `LIMIT_BYTES` (see `refuse_length`).
        now: The time by the wall clock; None: that of the machine.

    Raises:
        WebhookRefused: With the status of the response and the reason.
    """
    if not secret:
        raise ValueError("a webhook needs a secret that is not empty, or everyone could call it")
    if len(body) > LIMIT_BYTES:
        raise _too_long()
    signed = _verified(secret, style, headers, body, now=now or datetime.now(UTC))
    payload = read_payload(body, _header(headers, "Content-Type"))
    return Delivery(hashlib.sha256(signed).hexdigest(), payload)


def refuse_unsigned(style: Style, headers: Headers) -> None:
    """Refuse a request without a well-formed signature, before its body is read.

    Raises:
        WebhookRefused: 401 without a signature, 400 for a malformed one.
    """
    _read_signature(style, headers)


def refuse_length(headers: Headers) -> None:
    """Refuse a request by its `Content-Length`, before its body is read.

    Raises:
        WebhookRefused: 413 if it is too long, 400 if it is not a number.
    """
    value = _header(headers, "Content-Length")
    if value is None:
        return
    if not _TIME.fullmatch(value):
        raise WebhookRefused(400, f"Content-Length {value[:40]!r} is not a length")
    if int(value) > LIMIT_BYTES:
        raise _too_long()


def _verified(secret: bytes, style: Style, headers: Headers, body: bytes, *, now: datetime) -> bytes:
    """Check the signature of a request, in constant time, and return what is signed.

    Raises:
        WebhookRefused: 401 without a signature, with a wrong or an old one; 400 with one that is malformed.
    """
    time_text, signatures = _read_signature(style, headers)
    signed = body
    if time_text is not None:
        signed = time_text.encode("ascii") + b"." + body
        _check_time(int(time_text), now)
    expected = hmac.new(secret, signed, hashlib.sha256).digest()
    is_valid = False
    for signature in signatures:
        is_valid |= hmac.compare_digest(expected, signature)
    if not is_valid:
        name = _HEADERS[style]
        raise WebhookRefused(
            401, f"the signature in {name} does not match this body and the secret of this webhook"
        )
    return signed


def _header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """Return the value of a header without surrounding space; None if there is none.

    Raises:
        WebhookRefused: 400 if the header occurs twice, since two readers might use different ones.
    """
    values = [value for key, value in headers if key.lower() == name.lower()]
    if len(values) > 1:
        raise WebhookRefused(400, f"the header {name} occurs {len(values)} times; send it once")
    return values[0].strip(" \t") if values else None


def _read_signature(style: Style, headers: Headers) -> tuple[str | None, list[bytes]]:
    """Return the signed time, if there is one, and the signatures."""
    name = _HEADERS[style]
    value = _header(headers, name)
    if value is None:
        raise WebhookRefused(401, f"there is no signature; send it in the header {name}")
    if len(value) > _MAX_SIGNATURE:
        raise WebhookRefused(400, f"the header {name} is longer than {_MAX_SIGNATURE} characters")
    return (None, _read_github(name, value)) if style == "github" else _read_timed(name, value)


def _read_github(name: str, value: str) -> list[bytes]:
    match = _GITHUB.fullmatch(value)
    if match is None:
        raise WebhookRefused(400, f"{name} must be 'sha256=' and 64 hexadecimal digits")
    return [bytes.fromhex(match[1])]


def _read_timed(name: str, value: str) -> tuple[str, list[bytes]]:
    pairs = [part.strip().partition("=")[::2] for part in value.split(",")]
    times = [value for key, value in pairs if key == "t"]
    # There may be signatures of other versions: senders add a new version before they remove the old one.
    signatures = [value for key, value in pairs if key == "v1"]
    is_well_formed = (
        len(times) == 1
        and _TIME.fullmatch(times[0])
        and 0 < len(signatures) <= _MAX_SIGNATURES
        and all(_HEX.fullmatch(signature) for signature in signatures)
    )
    if not is_well_formed:
        raise WebhookRefused(400, f"{name} must be 't=<seconds since 1970>,v1=<64 hexadecimal digits>'")
    return times[0], [bytes.fromhex(signature) for signature in signatures]


def _check_time(seconds: int, now: datetime) -> None:
    age_s = now.timestamp() - seconds
    if abs(age_s) > _WINDOW_S:
        direction = "old" if age_s > 0 else "ahead"
        raise WebhookRefused(
            401,
            f"the signature is {abs(age_s):.0f} s {direction}; {_WINDOW_S:g} s are allowed: set the clocks",
        )


def _too_long() -> WebhookRefused:
    return WebhookRefused(413, f"the body is longer than {LIMIT_BYTES} bytes")
