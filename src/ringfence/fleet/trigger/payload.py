"""The body of a webhook as a plain value, for a prompt's template."""

import json
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from ringfence.fleet.trigger.refusal import WebhookRefused

Payload = Any
"""What JSON can say: mappings, lists, text, numbers, booleans, None."""
MOST_FIELDS: Final = 1000
"""Of a form."""
_DEEPEST: Final = 64
_LONGEST_SHOWN: Final = 80


def read_payload(body: bytes, content_type: str | None) -> Payload:
    """A body's value: of JSON its value, of a form its fields (the JSON in its only field `payload`), of text the text.

    Args:
        body: At most as long as was checked before.
        content_type: The header; None is text.

    Raises:
        WebhookRefused: 415 for another type or encoding, 400 for a body that is not what its type says.
    """
    kind, charset = _read_type(content_type)
    if charset not in {"utf-8", "utf8", "us-ascii"}:
        raise WebhookRefused(415, f"charset {charset[:_LONGEST_SHOWN]!r} is not taken; send utf-8")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise WebhookRefused(400, f"the body is no UTF-8 text, at byte {exc.start}") from exc
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return _json(text)
    if kind == "application/x-www-form-urlencoded":
        return _form(text)
    if kind.startswith("text/"):
        return text
    raise WebhookRefused(
        415, f"content type {kind[:_LONGEST_SHOWN]!r} is not taken; send JSON, a form or text"
    )


def _read_type(content_type: str | None) -> tuple[str, str]:
    kind, *parameters = (content_type or "text/plain").split(";")
    named = dict(part.strip().lower().partition("=")[::2] for part in parameters)
    return kind.strip().lower(), named.get("charset", "utf-8").strip('"')


def _json(text: str) -> Payload:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        raise WebhookRefused(400, f"the body is no JSON: {_first_words(exc)}") from exc
    if _depth_exceeds(value, _DEEPEST):
        raise WebhookRefused(400, f"the body's JSON is nested more than {_DEEPEST} deep")
    return value


def _form(text: str) -> Payload:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError as exc:
        raise WebhookRefused(
            400, f"the body is no form of at most {MOST_FIELDS} fields: {_first_words(exc)}"
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


def _depth_exceeds(value: Payload, most: int) -> bool:
    level = [value]
    for _ in range(most):
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
    raise ValueError(f"{name} is no number of JSON")


def _first_words(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:_LONGEST_SHOWN]
