"""Reads the fields of a mapping in a plan, under any of their names, and collects errors to report them together.

Keys that no field uses are kept as extra values.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ringfence.config.document import Document, KeyPath
from ringfence.config.names import nearest
from ringfence.config.validation import combine
from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.loop.story.model import FOREIGN_KEYS
from ringfence.loop.story.words import quoted

_TYPO_SIMILARITY = 0.8
"""The similarity of an unknown key to a known one from which it counts as a misspelling."""
_RENAMED_SIMILARITY = 0.6
"""The same for a field that is missing and that every story needs."""
_MAX_KEY_CHARS = 100
_MAX_KEYS = 100
"""How many keys of a mapping are searched for misspellings."""
_MAX_PRIORITY = 1e12
_MAX_COMPLAINTS = 200


class ErrorCollector:
    """Collects errors, and raises them together.

    Args:
        what: The input's name in messages if it is not a file, such as `the planner's answer`.
        document: The file, which knows the line and column of each value.
    """

    def __init__(self, what: str, document: Document | None = None) -> None:
        self._what = what
        self._document = document
        self._found: list[RingfenceError] = []

    def add(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        """Add an error about the value, or the key, at a path."""
        if len(self._found) >= _MAX_COMPLAINTS:
            return
        if self._document is None:
            self._found.append(ConfigurationError(f"{self._what}: {message}"))
        else:
            self._found.append(self._document.error(path, message, of_key=of_key))

    def raise_any(self) -> None:
        """Raise the collected errors, if there are any.

        Raises:
            ConfigurationError: The first error; its message contains the others.
        """
        if self._found:
            raise combine(self._found)


class Fields:
    """The fields of one mapping.

    Args:
        values: The mapping.
        path: The mapping's path in the document.
        complaints: Collects the errors.
        of: The prefix of a field's name in messages, such as `story 'S1': `.
    """

    def __init__(
        self, values: Mapping[str, Any], path: KeyPath, complaints: ErrorCollector, of: str = ""
    ) -> None:
        self.of = of
        self._values = values
        self._path = path
        self._complaints = complaints
        self._used: set[str] = set()

    def peek(self, name: str) -> Any:
        """Return the value of a key without marking the key as used."""
        return self._values.get(name)

    def has(self, name: str) -> bool:
        """Return whether a key has a value other than null or blank text."""
        value = self._values.get(name)
        return value is not None and not (isinstance(value, str) and not value.strip())

    def key(self, names: Collection[str]) -> str | None:
        """Return the name under which a field has a value, and mark all of its names as used."""
        self._used.update(names)
        found = [name for name in names if self.has(name)]
        other = next((name for name in found if self._values[name] != self._values[found[0]]), None)
        if other is not None:
            self.wrong(other, f"{quoted(found[0])} is there as well, with another value; keep one")
        return found[0] if found else None

    def first(self, names: Sequence[str]) -> str:
        """Return the first of several fields that has a value, or else the last; the other fields stay unused."""
        self._used.update(name for name in names if not self.has(name))
        return next((name for name in names if self.has(name)), names[-1])

    def missing(self, names: Collection[str], advice: str) -> None:
        """Add an error about a missing field, which names the key that may be a misspelling of it."""
        for key in list(self._values)[:_MAX_KEYS]:
            if key in self._used or key in names or key.startswith(FOREIGN_KEYS):
                continue
            if any(_is_similar(key, name, _RENAMED_SIMILARITY) for name in names):
                self._used.add(key)
                self.wrong(key, f"unknown key; did you mean {quoted(next(iter(names)))}?", of_key=True)
                return
        self._complaints.add(self._path, f"{self.of}{next(iter(names))} is missing; {advice}")

    def text(self, *names: str, max_chars: int) -> str | None:
        """Return a field's text, stripped; a number is converted to text."""
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
        """Return a field's list of texts, stripped; an item that is not a valid text is an error and left out."""
        key = self.key(names)
        if key is None:
            return None
        values = self._values[key]
        if not isinstance(values, list):
            self.wrong(key, f"{quoted(values)} is no list; write a list of texts")
            return ()
        if len(values) > max_items:
            self.wrong(key, f"it has {len(values)} items, at most {max_items} are allowed; split the story")
        found: list[str] = []
        for index, value in enumerate(values[:max_items]):
            item = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
            if reason := _wrong_text(item, max_chars):
                self.wrong(key, reason, index=index)
            else:
                found.append(item.strip())
        return tuple(found)

    def number(self, name: str) -> float | None:
        """Return a field's number."""
        key = self.key((name,))
        value = self._values[key] if key else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(name, f"{quoted(value)} is no number; write one, lower numbers come first")
            return None
        if (
            not -_MAX_PRIORITY <= value <= _MAX_PRIORITY
        ):  # also not a number; an int may be too large for a float
            self.wrong(name, f"{quoted(value)} is beyond {_MAX_PRIORITY:g}; write a smaller one")
            return None
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a field's boolean; false if the field is missing."""
        key = self.key((name,))
        value = self._values[key] if key else False
        if not isinstance(value, bool):
            self.wrong(name, f"{quoted(value)} is neither true nor false; write one of them")
            return False
        return value

    def wrong(self, key: str, message: str, *, index: int | None = None, of_key: bool = False) -> None:
        """Add an error about a field, or about one of its items."""
        at = "" if index is None else f"[{index}]"
        path = (*self._path, key) if index is None else (*self._path, key, index)
        name = key if re.fullmatch(r"[\w-]{1,100}", key, re.ASCII) else quoted(key[:_MAX_KEY_CHARS])
        self._complaints.add(path, f"{self.of}{name}{at}: {message}", of_key=of_key)

    def extra(self) -> dict[str, Any]:
        """Return the keys that no field used, with their values."""
        return {key: value for key, value in self._values.items() if key not in self._used}

    def check_misspellings(self, known: Collection[Collection[str]]) -> None:
        """Add an error for each unused key that resembles a field without a value.

        Keys that begin with `x-`, `_` or `$` are extensions, and are not checked.

        Args:
            known: The names of each field.
        """
        meaningful = {name for names in known for name in names}
        absent = [names for names in known if not any(self.has(name) for name in names)]
        for key in list(self.extra())[:_MAX_KEYS]:
            if key in meaningful or key.startswith(FOREIGN_KEYS):
                continue
            similar = [name for names in absent for name in names if _is_similar(key, name, _TYPO_SIMILARITY)]
            if similar:
                close = nearest(key, similar) or similar[0]
                self.wrong(key, f"unknown key; did you mean {quoted(close)}?", of_key=True)


def _is_similar(key: str, name: str, cutoff: float) -> bool:
    one, other = _normalize_key(key[:_MAX_KEY_CHARS]), _normalize_key(name)
    if one == other:
        return True
    possible = 2 * min(len(one), len(other)) / (len(one) + len(other) or 1)
    return possible >= cutoff and difflib.SequenceMatcher(None, one, other).ratio() >= cutoff


def _normalize_key(key: str) -> str:
    return re.sub(r"[\s_-]+", "", key).casefold()


def _wrong_text(value: Any, max_chars: int) -> str | None:
    if not isinstance(value, str):
        return f"{quoted(value)} is no text; write one"
    if not value.strip():
        return "it is blank; write something, or remove it"
    if len(value) > max_chars:
        return f"it has {len(value)} characters, at most {max_chars} are allowed; shorten it"
    if "\0" in value:
        return "it contains a NUL character, which no command or file name can contain; remove it"
    return None
