"""Reads JSON and remembers where each value was written, so that errors name line and column.

YAML would read most JSON, but not tabs between values nor escaped surrogate pairs, both of which JSON writers write.
"""

import json
import math
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any, NoReturn

from ringfence.config.document import Document, KeyPath, Place
from ringfence.config.yaml import decoded
from ringfence.errors import ConfigurationError
from ringfence.loop.story.bounds import DEPTH_LIMIT, VALUES_LIMIT
from ringfence.loop.story.words import SURROGATE, quoted

_SPACE = re.compile(r"[ \t\r\n]*")


def parse_json(content: bytes, file: Path) -> tuple[Any, Document]:
    """Parse the content of `file`: its value, and a document that knows where all stands and has no values.

    Raises:
        ConfigurationError: With the place of what is wrong; keys that are there twice and numbers that are
            none, too.
    """
    text = decoded(content, file)
    reader = _Reader(text, file)
    value = reader.whole()
    return value, Document(file, content, {}, reader.places, reader.key_places)


class _Reader:
    def __init__(self, text: str, file: Path) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.key_places: dict[KeyPath, Place] = {}
        self._text = text
        self._file = file
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._decoder = json.JSONDecoder(parse_constant=self._no_number)
        self._at = 0

    def whole(self) -> Any:
        if not self._next():
            self._refuse("the file is empty; write the stories into it")
        value = self._value(())
        if self._next():
            self._refuse("this is not JSON: something follows after its end; remove it")
        return value

    def _value(self, path: KeyPath) -> Any:
        first = self._next()
        if len(path) >= DEPTH_LIMIT:
            self._refuse(f"nested deeper than {DEPTH_LIMIT} levels")
        if len(self.places) >= VALUES_LIMIT:
            self._refuse(f"more than {VALUES_LIMIT} values")
        self.places[path] = self._place(self._at)
        if first == "{":
            return self._mapping(path)
        if first == "[":
            return self._list(path)
        return self._scalar()

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while self._goes_on("}", is_first=not found):
            if self._next() != '"':
                self._refuse(f"this is not JSON: a key in double quotes is missing before {self._shown()}")
            start = self._at
            key = self._scalar()
            if key in found:
                self._at = start
                first = self.key_places[(*path, key)]
                self._refuse(f"key {quoted(key)} is there twice, first in line {first.line}; remove one")
            self.key_places[(*path, key)] = self._place(start)
            if self._next() != ":":
                self._refuse(f"this is not JSON: ':' is missing before {self._shown()}")
            self._at += 1
            found[key] = self._value((*path, key))
        return found

    def _list(self, path: KeyPath) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._goes_on("]", is_first=not found):
            found.append(self._value((*path, len(found))))
        return found

    def _goes_on(self, end: str, *, is_first: bool) -> bool:
        """Whether another item follows; steps over the comma before it, or over the end."""
        letter = self._next()
        if letter == end:
            self._at += 1
            return False
        if is_first:
            return True
        if letter != ",":
            self._refuse(f"this is not JSON: ',' or {end!r} is missing before {self._shown()}")
        comma = self._at
        self._at += 1
        if self._next() == end:
            self._at = comma
            self._refuse(f"this is not JSON: nothing follows this ',' before {end!r}; remove it")
        return True

    def _scalar(self) -> Any:
        start = self._at
        try:
            value, self._at = self._decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as exc:
            self._at = min(exc.pos, len(self._text))
            if exc.msg == "Expecting value":
                self._refuse(f"this is not JSON: a value is missing before {self._shown()}")
            self._refuse(f"this is not JSON: {exc.msg[:1].lower()}{exc.msg[1:].removesuffix(' at')}")
        except ValueError:
            self._no_number(self._text[start : start + 40])
        if isinstance(value, str) and SURROGATE.search(value):
            self._at = start
            self._refuse(f"{quoted(value)} holds half a surrogate pair")
        if isinstance(value, float) and not math.isfinite(value):
            self._at = start
            self._no_number(self._text[start : start + 40])
        return value

    def _no_number(self, text: str) -> NoReturn:
        self._refuse(f"{quoted(text)} is not a number that can be read")

    def _next(self) -> str:
        """The next letter that is no space; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def _shown(self) -> str:
        following = self._text[self._at : self._at + 20].partition("\n")[0]
        if following.startswith(("//", "/*", "#")):
            return f"{quoted(following)} (JSON has no comments; save it as YAML to have some)"
        return (
            quoted(following)
            if following
            else "the end of the file"
            if self._is_at_end()
            else "the line's end"
        )

    def _is_at_end(self) -> bool:
        return self._at >= len(self._text)

    def _place(self, at: int) -> Place:
        line = bisect_right(self._starts, at)
        return Place(line, at - self._starts[line - 1] + 1)

    def _refuse(self, message: str) -> NoReturn:
        place = self._place(self._at)
        raise ConfigurationError(message, file=self._file, line=place.line, column=place.column)
