"""A line of a transcript as a record, or what is wrong with it. No line is an error: transcripts are torn."""

import json
from hashlib import sha256
from typing import Any

import msgspec

from ringfence.runtime.transcript.lines import MAX_LINE_BYTES, Line

JSONObject = dict[str, Any]

MAX_DEPTH = 100
"""Deeper records are refused: whatever walks through them later would run out of stack."""

_DECODER = msgspec.json.Decoder()


class Record(msgspec.Struct, frozen=True):
    """A line that holds a JSON object."""

    line: int
    offset: int
    value: JSONObject


class Damage(msgspec.Struct, frozen=True):
    """What could not be read, or only in part."""

    line: int
    offset: int
    size: int
    digest: str | None
    reason: str


Item = Record | Damage


def parse(line: Line) -> list[Item]:
    """What a line holds: a record, damage, or both where something of it could be saved; nothing if it is blank."""
    data = line.data
    if data is None:
        return [_damage(line, f"the line is longer than {MAX_LINE_BYTES // 1024**2} MiB")]
    try:
        value = _DECODER.decode(data)
    except (ValueError, RecursionError):
        return _saved(line, data)
    return _checked(line, data, value)


def parse_rest(line: Line) -> list[Item]:
    """As `parse`, for a last line without an end: whole records count, half a record is told as such."""
    items = parse(line)
    if any(isinstance(item, Record) for item in items):
        return items
    return [_damage(line, "the last line has no end: a record was being written, or its writer died")]


def _saved(line: Line, data: bytes) -> list[Item]:
    """What can be had of a line that is no strict JSON in UTF-8."""
    if not data.strip():
        return []
    told: list[Item] = []
    text = data.lstrip(b"\0")
    if len(text) < len(data):
        told.append(_damage(line, f"the line begins with {len(data) - len(text)} NUL bytes"))
        if not text:
            return told
    shown = text.decode("utf-8", "replace")
    if "\ufffd" in shown and "\ufffd".encode() not in text:
        told.append(_damage(line, "the line holds bytes that are no UTF-8; they were replaced"))
    try:
        # Unlike msgspec it takes lone surrogates, which JavaScript writes, and bare control characters.
        value = json.loads(shown, strict=False)
    except RecursionError:
        return [_damage(line, f"the line is nested deeper than {MAX_DEPTH}")]
    except ValueError as exc:
        return [_damage(line, f"the line is no JSON: {exc}")]
    return [*told, *_checked(line, data, value)]


def _checked(line: Line, data: bytes, value: Any) -> list[Item]:
    if not isinstance(value, dict):
        return [_damage(line, "the line is no JSON object")]
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and is_deep(value):
        return [_damage(line, f"the line is nested deeper than {MAX_DEPTH}")]
    return [Record(line.number, line.offset, value)]


def is_deep(value: Any) -> bool:
    """Whether a list or mapping is nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
        if not level:
            return False
    return True


def _damage(line: Line, reason: str) -> Damage:
    digest = line.digest if line.data is None else sha256(line.data).hexdigest()
    return Damage(line.number, line.offset, line.size, digest, reason)
