"""Parses a stories' file, JSON or YAML, with the line and column of each value, and limits its size and depth.

A YAML parser reads most JSON, but neither tabs between values nor escaped surrogate pairs, both of which occur in JSON
files. The YAML parser is imported only when a YAML file is read.
"""

import json
import math
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

from ringfence.config.document import Document, KeyPath, Place, decode_text, read_regular_file
from ringfence.errors import ConfigurationError
from ringfence.loop.story.words import SURROGATE, quoted

FILE_LIMIT_BYTES = 1024 * 1024
VALUES_LIMIT = 20_000
DEPTH_LIMIT = 16
_NUMBER_DIGITS = 400
_NUMBER_BITS = 1024
_YAML = (".yaml", ".yml")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*"?|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)
"""An unterminated string extends to the end of the text, so that no part of a text is scanned twice."""


def parse_file(file: Path) -> tuple[Any, Document]:
    """Parse a file as JSON or, by its suffix, as YAML. Return its content, and a document with the position of values.

    Raises:
        ConfigurationError: The file cannot be read or parsed, is empty, or exceeds a limit of its size, of the number
            of values or of the depth; the error names line and column where there is one.
    """
    content = read_regular_file(file, follow_link=True, limit_bytes=FILE_LIMIT_BYTES)
    if not content.strip():
        message = f"the file is empty; write a mapping with {quoted('stories')}, a list"
        raise ConfigurationError(message, file=file, line=1, column=1)
    if file.suffix.lower() not in _YAML:
        return parse_json(content, file)
    from ringfence.config.yaml import parse_value

    return parse_value(content, file, most_values=VALUES_LIMIT)


def parse_json(content: bytes, file: Path) -> tuple[Any, Document]:
    """Parse JSON. Return its value, and a document with the position of each value, but without values.

    Raises:
        ConfigurationError: It is not UTF-8 or not JSON, a mapping contains a key twice, it is nested deeper than
            `DEPTH_LIMIT` levels, or it has more than `VALUES_LIMIT` values. The error names line and column.
    """
    text = decode_text(content, file)
    reader = _Reader(text, file)
    reader.check_depth()
    try:
        value = json.loads(text, parse_int=_whole_number)
    except json.JSONDecodeError as exc:
        has_comment = text[exc.pos :].startswith(("//", "/*", "#"))
        hint = "; JSON has no comments, save it as YAML to have some" if has_comment else ""
        message = f"this is not JSON: {exc.msg[:1].lower()}{exc.msg[1:].removesuffix(' at')}{hint}"
        raise reader.error(message, exc.pos) from exc
    reader.read(reader.next_token(), ())
    return value, Document(file, content, {}, reader.places, reader.key_places)


def _whole_number(digits: str) -> float:
    """Convert an integer; one with too many digits becomes infinity, which `check_values` refuses."""
    return int(digits) if len(digits) <= _NUMBER_DIGITS else math.inf


class _Reader:
    """Finds the line and column of values; `read` requires a text that is valid JSON."""

    def __init__(self, text: str, file: Path) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.key_places: dict[KeyPath, Place] = {}
        self._text = text
        self._file = file
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tokens = _TOKEN.finditer(text)

    def check_depth(self) -> None:
        depth = 0
        for token in _TOKEN.finditer(self._text):
            depth += (token[0] in "{[") - (token[0] in "}]")
            if depth > DEPTH_LIMIT:
                raise self.error(f"nested deeper than {DEPTH_LIMIT} levels", token.start())

    def next_token(self) -> re.Match[str]:
        return next(self._tokens)

    def read(self, token: re.Match[str], path: KeyPath) -> None:
        """Record the position of the value that begins with a token, and of all values in it."""
        if len(self.places) >= VALUES_LIMIT:
            raise self.error(f"more than {VALUES_LIMIT} values", token.start())
        self.places[path] = self._place(token.start())
        if token[0] not in ("{", "["):
            return
        count = 0
        while (item := self.next_token())[0] not in ("}", "]"):
            if item[0] == ",":
                continue
            if token[0] == "{":
                self.read_member(item, path)
            else:
                self.read(item, (*path, count))
            count += 1

    def read_member(self, token: re.Match[str], path: KeyPath) -> None:
        below = (*path, json.loads(token[0]))
        first = self.key_places.get(below)
        if first is not None:
            message = f"key {quoted(below[-1])} is there twice, first in line {first.line}; remove one"
            raise self.error(message, token.start())
        self.key_places[below] = self._place(token.start())
        self.next_token()  # the colon
        self.read(self.next_token(), below)

    def error(self, message: str, at: int) -> ConfigurationError:
        place = self._place(at)
        return ConfigurationError(message, file=self._file, line=place.line, column=place.column)

    def _place(self, at: int) -> Place:
        line = bisect_right(self._starts, at)
        return Place(line, at - self._starts[line - 1] + 1)


def check_values(value: Any, *, values_limit: int, chars_limit: int) -> tuple[KeyPath, str] | None:
    """Return the path of the first value that JSON or YAML cannot represent or that exceeds a limit, and the reason.

    Args:
        value: Any value; it is walked no further than the limits.
        values_limit: Limit for the number of mappings, lists and scalars together; keys are not counted.
        chars_limit: Limit for the length of all texts together, those of keys included.
    """
    waiting: list[tuple[KeyPath, Any]] = [((), value)]
    values = chars = 0
    while waiting:
        path, each = waiting.pop()
        values += 1
        chars += len(each) if isinstance(each, str) else 0
        if values > values_limit or chars > chars_limit or len(path) > DEPTH_LIMIT:
            bounds = f"{values_limit} values or {chars_limit} characters"
            return path, f"it holds more than {bounds}, or nests deeper than {DEPTH_LIMIT} levels"
        if reason := _unfit(each):
            return path, reason
        if isinstance(each, dict):
            chars += sum(len(key) for key in each)
            waiting.extend(((*path, key), below) for key, below in reversed(each.items()))
        elif isinstance(each, list):
            waiting.extend(((*path, index), below) for index, below in reversed(list(enumerate(each))))
    return None


def _unfit(value: Any) -> str | None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) and SURROGATE.search(key) is None for key in value):
            return "a key is no text that can be written"
    elif isinstance(value, bool) or value is None or isinstance(value, list):
        return None
    elif isinstance(value, int):
        return "this number is too large" if value.bit_length() > _NUMBER_BITS else None
    elif isinstance(value, float):
        return None if math.isfinite(value) else f"{value!r} is not finite"
    elif isinstance(value, str):
        return "it contains a lone surrogate" if SURROGATE.search(value) else None
    else:
        return f"unsupported type {type(value).__name__!r}"
    return None
