"""The fields of one mapping of a plan, taken one by one under any of their names; what nobody took is extra.

What is wrong is gathered, and reported at once.
"""

import difflib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ringfence.config.document import Document, KeyPath
from ringfence.config.names import nearest
from ringfence.config.validation import combine
from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.loop.story.model import FOREIGN_KEYS
from ringfence.loop.story.words import quoted

_ALIKE = 0.8
"""The similarity of an unknown key to a known one from which on it is a slip."""
_LONGEST_KEY = 100
_LOOKED_AT = 100
"""Slips are looked for among so many keys of a mapping."""
_PRIORITY_LIMIT = 1e12
_COMPLAINTS_LIMIT = 200


class Complaints:
    """Gathers what is wrong.

    Args:
        what: What is read, where it is no file: `the planner's answer`.
        document: The file, which knows where each value was written.
    """

    def __init__(self, what: str, document: Document | None = None) -> None:
        self._what = what
        self._document = document
        self._found: list[RingfenceError] = []

    def add(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        """Note what is wrong with the value, or the key, at a path."""
        if len(self._found) >= _COMPLAINTS_LIMIT:
            return
        if self._document is None:
            self._found.append(ConfigurationError(f"{self._what}: {message}"))
        else:
            self._found.append(self._document.error(path, message, of_key=of_key))

    def raise_any(self) -> None:
        """Raise what was found, if anything.

        Raises:
            ConfigurationError: At the first place; the others follow in its text.
        """
        if self._found:
            raise combine(self._found)


class Fields:
    """One mapping.

    Args:
        values: What stands in it.
        path: Where it stands.
        complaints: Where what is wrong is noted.
        of: What stands before the field in messages: `story 'S1': `.
    """

    def __init__(
        self, values: Mapping[str, Any], path: KeyPath, complaints: Complaints, of: str = ""
    ) -> None:
        self.of = of
        self._values = values
        self._path = path
        self._complaints = complaints
        self._taken: set[str] = set()

    def peek(self, name: str) -> Any:
        """Return the value of a key without taking it."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Return whether a key has a value; null and blank text are none."""
        value = self._values.get(name)
        return value is not None and not (isinstance(value, str) and not value.strip())

    def key(self, names: Collection[str]) -> str | None:
        """Return the name under which a field is there, and take all of its names."""
        self._taken.update(names)
        found = [name for name in names if self.has(name)]
        if len(found) > 1 and any(self._values[name] != self._values[found[0]] for name in found):
            self.wrong(found[1], f"{quoted(found[0])} is there as well and says something else; keep one")
        return found[0] if found else None

    def first(self, names: Sequence[str]) -> str:
        """Return the first of several fields that is there; the others may stand beside it. If none is, the last."""
        self._taken.update(name for name in names if not self.has(name))
        return next((name for name in names if self.has(name)), names[-1])

    def missing(self, names: Collection[str], advice: str) -> None:
        """Note that a field is not there, and which key may have been meant to be it."""
        for key in list(self._values)[:_LOOKED_AT]:
            if key not in self._taken and key not in names and any(_alike(key, name, 0.6) for name in names):
                self._taken.add(key)
                self.wrong(
                    key, f"{quoted(next(iter(names)))} is missing; did you mean that by this?", of_key=True
                )
                return
        self._complaints.add(self._path, f"{self.of}{next(iter(names))} is missing; {advice}")

    def text(self, *names: str, max_chars: int) -> str | None:
        """Return a text, stripped; a number is its text."""
        key = self.key(names)
        if key is None:
            return None
        value = self._values[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        reason = _wrong_text(value, max_chars)
        if reason:
            self.wrong(key, reason)
            return None
        return str(value).strip()

    def texts(self, *names: str, max_items: int, max_chars: int) -> tuple[str, ...] | None:
        """Return a list of texts that are not blank, stripped; one that does not fit is noted and left out."""
        key = self.key(names)
        if key is None:
            return None
        values = self._values[key]
        if not isinstance(values, list):
            self.wrong(key, f"{quoted(values)} is no list; write a list of texts")
            return ()
        if len(values) > max_items:
            self.wrong(key, f"it has {len(values)} items, {max_items} are the most; split the story")
        found: list[str] = []
        for index, value in enumerate(values[:max_items]):
            item = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
            if reason := _wrong_text(item, max_chars):
                self.wrong(key, reason, index=index)
            else:
                found.append(item.strip())
        return tuple(found)

    def number(self, name: str) -> float | None:
        """Return a number."""
        key = self.key((name,))
        value = self._values[key] if key else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(name, f"{quoted(value)} is no number; write one, the lower the sooner")
            return None
        if not math.isfinite(value) or abs(value) > _PRIORITY_LIMIT:
            self.wrong(name, f"{quoted(value)} is beyond {_PRIORITY_LIMIT:g}; write a smaller one")
            return None
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a flag; false if it is not there."""
        key = self.key((name,))
        value = self._values[key] if key else False
        if not isinstance(value, bool):
            self.wrong(name, f"{quoted(value)} is neither true nor false; write one of these")
            return False
        return value

    def wrong(self, key: str, message: str, *, index: int | None = None, of_key: bool = False) -> None:
        """Note what is wrong with a field, or one item of it."""
        at = "" if index is None else f"[{index}]"
        path = (*self._path, key) if index is None else (*self._path, key, index)
        name = key if re.fullmatch(r"[\w-]{1,100}", key, re.ASCII) else quoted(key[:_LONGEST_KEY])
        self._complaints.add(path, f"{self.of}{name}{at}: {message}", of_key=of_key)

    def extra(self) -> dict[str, Any]:
        """Return the keys that nobody took, with their values."""
        return {key: value for key, value in self._values.items() if key not in self._taken}

    def slips(self, known: Collection[Collection[str]]) -> None:
        """Note each key that nobody took and that looks like a field that is not there.

        Keys that begin with `x-`, `_` or `$` are somebody else's on purpose.

        Args:
            known: The names of each field.
        """
        meaningful = {name for names in known for name in names}
        absent = [names for names in known if not any(self.has(name) for name in names)]
        for key in list(self.extra())[:_LOOKED_AT]:
            if key in meaningful or key.startswith(FOREIGN_KEYS):
                continue
            meant = [name for names in absent for name in names if _alike(key, name, _ALIKE)]
            if meant:
                close = nearest(key, meant) or meant[0]
                self.wrong(key, f"there is no field of this name; did you mean {quoted(close)}?", of_key=True)


def _alike(key: str, name: str, cutoff: float) -> bool:
    one, other = _letters(key[:_LONGEST_KEY]), _letters(name)
    if one == other:
        return True
    possible = 2 * min(len(one), len(other)) / (len(one) + len(other) or 1)
    return possible >= cutoff and difflib.SequenceMatcher(None, one, other).ratio() >= cutoff


@lru_cache(maxsize=1024)
def _letters(key: str) -> str:
    return re.sub(r"[\s_-]+", "", key).casefold()


def _wrong_text(value: Any, max_chars: int) -> str | None:
    if not isinstance(value, str):
        return f"{quoted(value)} is no text; write one"
    if not value.strip():
        return "it is blank; write something, or remove it"
    if len(value) > max_chars:
        return f"it has {len(value)} characters, {max_chars} are the most; shorten it"
    if "\0" in value:
        return "it holds a NUL character, which no command or file name can carry; remove it"
    return None
