"""Whether a webhook's request is from whom it should be, whether it is new, and what it says. Pure functions."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from ringfence.fleet.trigger.payload import Payload, read_payload
from ringfence.fleet.trigger.refusal import WebhookRefused

LIMIT_BYTES: Final = 1024 * 1024
"""Of a body."""
_WINDOW_S: Final = 300.0
"""How far a signed time may be from now."""
_HEADERS: Final = {"github": "X-Hub-Signature-256", "stripe": "Stripe-Signature"}
_GITHUB: Final = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII | re.IGNORECASE)
_HEX: Final = re.compile(r"[0-9a-f]{64}", re.ASCII | re.IGNORECASE)
_TIME: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_LONGEST_SIGNATURE: Final = 4096
_MOST_SIGNATURES: Final = 16

Style = Literal["github", "stripe"]
Headers = Sequence[tuple[str, str]]
"""As they came, one pair for each line."""


@dataclass(frozen=True)
class Delivery:
    """A request that is taken."""

    body_hash: str
    """SHA-256 of the body, which makes two deliveries one: a key of the sender's would not be signed."""
    payload: Payload


def receive(
    secret: bytes, style: Style, headers: Headers, body: bytes, *, now: datetime | None = None
) -> Delivery:
    """Verify a request, and read it.

    Args:
        secret: What it is signed with.
        style: `github`: the body is signed, `sha256=...`. `stripe`: the time and the body are, `t=...,v1=...`.
        headers: All of the request's.
        body: Whole, as it came; stop reading beyond `LIMIT_BYTES` (see `refuse_length`).
        now: By the wall clock; None: the machine's.

    Raises:
        WebhookRefused: With the status to answer and the reason.
    """
    if not secret:
        raise ValueError("a webhook needs a secret that is not empty, or anybody could call it")
    if len(body) > LIMIT_BYTES:
        raise _too_long()
    _verify(secret, style, headers, body, now=now or datetime.now(UTC))
    payload = read_payload(body, _header(headers, "Content-Type"))
    return Delivery(hashlib.sha256(body).hexdigest(), payload)


def refuse_unsigned(style: Style, headers: Headers) -> None:
    """Refuse what has no signature at all, or no well-formed one, before anything is done for it.

    Raises:
        WebhookRefused: 401 without one, 400 for one that is malformed.
    """
    _read_signature(style, headers)


def refuse_length(headers: Headers) -> None:
    """Refuse by what a request says of its length, before its body is read.

    Raises:
        WebhookRefused: 413 if it is too long, 400 if it is no length.
    """
    said = _header(headers, "Content-Length")
    if said is None:
        return
    if not _TIME.fullmatch(said):
        raise WebhookRefused(400, f"Content-Length {said[:40]!r} is no length of a body")
    if int(said) > LIMIT_BYTES:
        raise _too_long()


def _verify(secret: bytes, style: Style, headers: Headers, body: bytes, *, now: datetime) -> None:
    """Check a request's signature, in a time that does not depend on how wrong it is.

    Raises:
        WebhookRefused: 401 without a signature, with a wrong or an old one; 400 with one that is malformed.
    """
    time_text, signatures = _read_signature(style, headers)
    signed = body
    if time_text is not None:
        signed = time_text.encode("ascii") + b"." + body
        _check_time(int(time_text), now)
    expected = hmac.new(secret, signed, hashlib.sha256).digest()
    is_signed = False
    for signature in signatures:
        is_signed |= hmac.compare_digest(expected, signature)
    if not is_signed:
        name = _HEADERS[style]
        raise WebhookRefused(
            401, f"the signature in {name} is not of this body by the secret of this webhook"
        )


def _header(headers: Iterable[tuple[str, str]], name: str) -> str | None:
    """A header's value without the space around it; None if it is not there.

    Raises:
        WebhookRefused: 400 if it is there twice, since two readers might take another one each.
    """
    values = [value for key, value in headers if key.lower() == name.lower()]
    if len(values) > 1:
        raise WebhookRefused(400, f"the header {name} is there {len(values)} times; send it once")
    return values[0].strip(" \t") if values else None


def _read_signature(style: Style, headers: Headers) -> tuple[str | None, list[bytes]]:
    """The time that is signed, if one is, and the signatures."""
    name = _HEADERS[style]
    said = _header(headers, name)
    if said is None:
        raise WebhookRefused(401, f"there is no signature; send it in the header {name}")
    if len(said) > _LONGEST_SIGNATURE:
        raise WebhookRefused(400, f"the header {name} is longer than {_LONGEST_SIGNATURE} characters")
    return (None, _read_github(name, said)) if style == "github" else _read_timed(name, said)


def _read_github(name: str, said: str) -> list[bytes]:
    match = _GITHUB.fullmatch(said)
    if match is None:
        raise WebhookRefused(400, f"{name} must be 'sha256=' and 64 hexadecimal digits")
    return [bytes.fromhex(match[1])]


def _read_timed(name: str, said: str) -> tuple[str, list[bytes]]:
    pairs = [part.strip().partition("=")[::2] for part in said.split(",")]
    times = [value for key, value in pairs if key == "t"]
    # Other versions may stand beside: senders add them before they drop the old one.
    signatures = [value for key, value in pairs if key == "v1"]
    is_sound = (
        len(times) == 1
        and _TIME.fullmatch(times[0])
        and 0 < len(signatures) <= _MOST_SIGNATURES
        and all(_HEX.fullmatch(signature) for signature in signatures)
    )
    if not is_sound:
        raise WebhookRefused(400, f"{name} must be 't=<seconds since 1970>,v1=<64 hexadecimal digits>'")
    return times[0], [bytes.fromhex(signature) for signature in signatures]


def _check_time(seconds: int, now: datetime) -> None:
    apart_s = now.timestamp() - seconds
    if abs(apart_s) > _WINDOW_S:
        direction = "old" if apart_s > 0 else "ahead"
        raise WebhookRefused(
            401,
            f"the signature is {abs(apart_s):.0f} s {direction}; {_WINDOW_S:g} s are allowed: set the clocks",
        )


def _too_long() -> WebhookRefused:
    return WebhookRefused(413, f"the body is longer than {LIMIT_BYTES} bytes")
