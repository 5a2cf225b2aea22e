"""Splits bytes into lines, and parses each line as a JSON record or reports its damage.

Transcripts can be torn and hostile, so no line raises an error. Memory is bounded by the longest line that is kept.
"""

import json
from hashlib import sha256
from typing import Any

import msgspec

from ringfence.events import JSONObject

MAX_LINE_BYTES = 16 * 1024**2
"""The content of a longer line is dropped; only its size and hash are reported."""
MAX_DEPTH = 100
"""Deeper records are refused, since code that walks through them later would run out of stack."""

_DECODER = msgspec.json.Decoder()


class Line(msgspec.Struct, frozen=True):
    """A line without its end. `data` is None if it was too long; then `digest` is its SHA-256."""

    number: int
    """Counted from 1."""
    offset: int
    """The offset of its first byte in the file."""
    size: int
    data: bytes | None
    digest: str | None = None


class LineSplitter:
    """Splits a stream of bytes into lines, however the bytes are chunked.

    Args:
        limit_bytes: The longest line whose content is kept.
    """

    def __init__(self, *, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.offset = 0
        """The offset of the line that is not complete yet."""
        self.number = 1
        """The number of that line."""
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._hash = sha256()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Add bytes; return the lines that they complete."""
        *ends, last = chunk.split(b"\n")
        lines = [self._ended(piece) for piece in ends]
        if last:
            self._keep(last)
        return lines

    def rest(self) -> Line | None:
        """Return the last, incomplete line; None if there is none. To be called when no more bytes follow."""
        return self._ended(b"") if self._size else None

    def _ended(self, piece: bytes) -> Line:
        if piece:
            self._keep(piece)
        if self._is_too_long:
            line = Line(self.number, self.offset, self._size, None, self._hash.hexdigest())
            self._hash, self._is_too_long = sha256(), False
        else:
            line = Line(self.number, self.offset, self._size, b"".join(self._pieces))
        self.offset += self._size + 1
        self.number += 1
        self._pieces.clear()
        self._size = 0
        return line

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._is_too_long:
            self._hash.update(piece)
            return
        self._pieces.append(piece)
        if self._size > self._limit:
            self._is_too_long = True
            for kept in self._pieces:
                self._hash.update(kept)
            self._pieces.clear()


class Record(msgspec.Struct, frozen=True):
    """A line that holds a JSON object."""

    line: int
    offset: int
    value: JSONObject


class Damage(msgspec.Struct, frozen=True):
    """A part of a file that could not be read, or only partly."""

    line: int
    offset: int
    size: int
    digest: str | None
    reason: str


Item = Record | Damage


def parse(line: Line) -> list[Item]:
    """Parse a line: return a record, damage, or both if a part could be recovered; nothing if it is blank."""
    data = line.data
    if data is None:
        return [_damage(line, f"the line is longer than {MAX_LINE_BYTES // 1024**2} MiB")]
    try:
        value = _DECODER.decode(data)
    except (ValueError, RecursionError):
        return _recovered(line, data)
    return _checked(line, data, value)


def parse_rest(line: Line) -> list[Item]:
    """As `parse`, for a last line without an end: a complete record is accepted, an incomplete one is reported."""
    items = parse(line)
    if any(isinstance(item, Record) for item in items):
        return items
    return [_damage(line, "the last line has no end: a record was being written, or its writer died")]


def _recovered(line: Line, data: bytes) -> list[Item]:
    """Recover as much as possible of a line that is not strict JSON in UTF-8."""
    if not data.strip():
        return []
    found: list[Item] = []
    text = data.lstrip(b"\0")
    if len(text) < len(data):
        found.append(_damage(line, f"the line begins with {len(data) - len(text)} NUL bytes"))
        if not text:
            return found
    shown = text.decode("utf-8", "replace")
    if "\ufffd" in shown and "\ufffd".encode() not in text:
        found.append(_damage(line, "the line holds bytes that are no UTF-8; they were replaced"))
    try:
        # Unlike msgspec it accepts lone surrogates, which JavaScript writes, and bare control characters.
        value = json.loads(shown, strict=False)
    except RecursionError:
        return [_damage(line, f"the line is nested deeper than {MAX_DEPTH}")]
    except ValueError as exc:
        return [_damage(line, f"the line is no JSON: {exc}")]
    return [*found, *_checked(line, data, value)]


def _checked(line: Line, data: bytes, value: Any) -> list[Item]:
    if not isinstance(value, dict):
        return [_damage(line, "the line is no JSON object")]
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and is_deep(value):
        return [_damage(line, f"the line is nested deeper than {MAX_DEPTH}")]
    return [Record(line.number, line.offset, value)]


def is_deep(value: Any) -> bool:
    """Return whether a list or mapping is nested deeper than `MAX_DEPTH`."""
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
