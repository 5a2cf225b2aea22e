"""Parses the body of a webhook request into plain values for a prompt template."""

import json
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from ringfence.errors import RingfenceError

Payload = Any
"""A value of JSON: a mapping, list, text, number, boolean or None."""
MAX_FIELDS: Final = 1000
"""The most fields of a form."""
_MAX_DEPTH: Final = 64
_MAX_SHOWN: Final = 80


class WebhookRefused(RingfenceError):
    """A request to a webhook is refused.

    Args:
        status: The HTTP status of the response: 400, 401, 408, 413 or 415.
        reason: What is wrong, in one line, for the sender. It contains no secret.
    """

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"webhook refused ({status}): {reason}")


def read_payload(body: bytes, content_type: str | None) -> Payload:
    """Return the value of JSON, the fields of a form (or the JSON in its only field `payload`), or the text.

    Args:
        body: The body, whose length was checked.
        content_type: The header; None: text.

    Raises:
        WebhookRefused: 415 for another type or encoding, 400 for a body that does not match its type.
    """
    kind, charset = _read_type(content_type)
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise WebhookRefused(415, f"charset {charset[:_MAX_SHOWN]!r} is not supported; send utf-8")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise WebhookRefused(400, f"the body is not UTF-8, at byte {exc.start}") from exc
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return _json(text)
    if kind == "application/x-www-form-urlencoded":
        return _form(text)
    if kind.startswith("text/"):
        return text
    raise WebhookRefused(
        415, f"content type {kind[:_MAX_SHOWN]!r} is not supported; send JSON, a form or text"
    )


def _read_type(content_type: str | None) -> tuple[str, str]:
    kind, *parameters = (content_type or "text/plain").split(";")
    named = dict(part.strip().lower().partition("=")[::2] for part in parameters)
    return kind.strip().lower(), named.get("charset", "utf-8").strip('"')


def _json(text: str) -> Payload:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise WebhookRefused(400, f"the body is not JSON: {_reason(exc)}") from exc
    if _depth_exceeds(value, _MAX_DEPTH):
        raise WebhookRefused(400, f"the body's JSON is nested more than {_MAX_DEPTH} deep")
    return value


def _form(text: str) -> Payload:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as exc:
        raise WebhookRefused(
            400, f"the body is not a form of at most {MAX_FIELDS} fields: {_reason(exc)}"
        ) from exc
    fields: dict[str, str | list[str]] = {}
    for name, value in pairs:
        earlier = fields.get(name)
        if earlier is None:
            fields[name] = value
        else:
            fields[name] = [*(earlier if isinstance(earlier, list) else [earlier]), value]
    only = fields.get("payload")
    return _json(only) if len(fields) == 1 and isinstance(only, str) else fields


def _depth_exceeds(value: Payload, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(inner, dict | list) for inner in level)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _reason(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:_MAX_SHOWN]
