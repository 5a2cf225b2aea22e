"""Reads merged values of herdctl's files key by key, and knows in the end which were not asked for."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ringfence.config.document import KeyPath, Origin
from ringfence.config.layer import Merged
from ringfence.config.names import nearest
from ringfence.errors import RingfenceError
from ringfence.fleet.herdctl.note import Kind, Note, Notes
from ringfence.secret import redact_shapes

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?\}")
_LONGEST_KEY = 120


def escaped(text: str) -> str:
    """A text in which the variables that herdctl knows stay, and no other dollar sign means anything to us."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        reference = _REFERENCE.match(text, dollar)
        end = reference.end() if reference else dollar + 1
        is_plain = reference is None and text[end : end + 1] not in ("$", "{")
        parts += [text[at:dollar], text[dollar:end] if reference or is_plain else "$$"]
        at = end
    return "".join(parts) + text[at:]


def holds_variable(value: object) -> bool:
    """Whether it is known only when variables are put in."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def variables_of(text: str) -> list[str]:
    """The variables that a text of ours needs, as they have no default."""
    plain = text.replace("$$", "")
    return [name for match in _REFERENCE.finditer(plain) if ":-" not in (name := match[0][2:-1])]


class Reader:
    """Values of one agent, or of a fleet.

    Args:
        merged: What its files say.
        notes: Where it is kept what does not come over.
        root: Where the whole stands, for what is missing.
    """

    def __init__(self, merged: Merged, notes: Notes, root: Origin) -> None:
        self.merged = merged
        self.root = root
        self._notes = notes
        self._read: set[KeyPath] = set()
        self._opened: set[KeyPath] = set()

    def value(self, *path: str | int) -> Any:
        """What stands at a path; None if nothing does."""
        self._read.add(path)
        return self._at(path)

    def text(self, *path: str | int) -> str | None:
        """A text, or a number as one, ready for our own interpolation."""
        value = self.value(*path)
        if value is None or isinstance(value, str):
            return None if value is None else escaped(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(path, "write a text")
        return str(value)

    def scalar(self, *path: str | int) -> Any:
        """A text, number or boolean, as our own models will check it."""
        value = self.value(*path)
        if isinstance(value, list | Mapping):
            raise self.wrong(path, "write a single value")
        return escaped(value) if isinstance(value, str) else value

    def flag(self, *path: str | int) -> bool | None:
        """A boolean that is known already; a variable in its place is left out and told of."""
        value = self.value(*path)
        if holds_variable(value):
            self.left_out(path, "it depends on a variable; write it out")
            return None
        if value is not None and not isinstance(value, bool):
            raise self.wrong(path, "write true or false")
        return value

    def word(self, path: KeyPath, known: Collection[str]) -> str | None:
        """One of some words; a variable in its place is left out and told of."""
        value = self.value(*path)
        if holds_variable(value):
            self.left_out(path, f"it depends on a variable; write one of {', '.join(known)}")
            return None
        if value is not None and value not in known:
            raise self.wrong(path, f"write one of {', '.join(known)}")
        return str(value) if value is not None else None

    def keys(self, *path: str | int) -> list[str]:
        """The keys of a mapping; none if nothing stands there."""
        value = self._at(path)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(path, "write a mapping")
        (self._opened if value else self._read).add(path)
        return list(value or ())

    def indices(self, *path: str | int) -> range:
        """The indices of a list; none if nothing stands there."""
        value = self._at(path)
        if value is not None and not isinstance(value, list):
            raise self.wrong(path, "write a list")
        (self._opened if value else self._read).add(path)
        return range(len(value or ()))

    def texts(self, *path: str | int) -> list[str] | None:
        """A list of texts; None if nothing stands there."""
        if self._at(path) is None:
            return None
        return [self.text(*path, index) or "" for index in self.indices(*path)]

    def table(self, *path: str | int) -> dict[str, str]:
        """A mapping of texts."""
        return {key: self.text(*path, key) or "" for key in self.keys(*path)}

    def has(self, *path: str | int) -> bool:
        """Whether something stands there."""
        return self._at(path) is not None

    def rename(self, alias: str, key: str) -> None:
        """Take another name of a key as that key, unless it is there itself."""
        if not self.has(alias):
            return
        if self.has(key):
            self.no_effect((alias,), f"`{key}` is said as well")
            return
        self.no_effect((alias,), f"an old name of `{key}`")
        self.merged.values[key] = self._at((alias,))
        for path in [path for path in self.merged.sources if path[0] == alias]:
            self.merged.sources[(key, *path[1:])] = self.merged.sources[path]

    def is_mapping(self, *path: str | int) -> bool:
        """Whether a mapping stands there."""
        return isinstance(self._at(path), Mapping)

    def origin(self, *path: str | int) -> Origin:
        """Where it was said."""
        origin = self.merged.blame(path) if path else self.root
        return origin if origin.file is not None else self.root

    def wrong(self, path: KeyPath, message: str) -> RingfenceError:
        """The error that blames a place."""
        return self.origin(*path).error(f"{shown(path)}: {message}")

    def left_out(self, path: KeyPath, reason: str) -> None:
        """Name a key that is not done here, if it is there."""
        self._note("left_out", path, reason)

    def changed(self, path: KeyPath, reason: str) -> None:
        """Name a key that is done in another way, if it is there."""
        self._note("changed", path, reason)

    def no_effect(self, path: KeyPath, reason: str) -> None:
        """Name a key of which nothing is lost, if it is there."""
        self._note("no_effect", path, reason)

    def rest(self, known: Collection[str]) -> None:
        """Name everything that nobody asked for."""
        parents = {known[:length] for known in self._read for length in range(len(known))} | self._opened
        for path in self._unread((), self.merged.values, parents | {()}):
            guess = nearest(str(path[0]), known) if len(path) == 1 else None
            hint = f"; did you mean {guess!r}?" if guess else ""
            self.left_out(path, f"it is none of the keys that are known of herdctl{hint}")

    def _note(self, kind: Kind, path: KeyPath, reason: str) -> None:
        self._read.add(path)
        if self._at(path) is not None:
            self._notes.add(Note(kind, shown(path), self.origin(*path), reason))

    def _at(self, path: KeyPath) -> Any:
        value: Any = self.merged.values
        for part in path:
            if isinstance(value, Mapping):
                value = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def _unread(self, path: KeyPath, value: Any, parents: Collection[KeyPath]) -> Iterator[KeyPath]:
        if path in self._read or value is None:
            return
        if path in parents and isinstance(value, Mapping):
            for key, below in value.items():
                yield from self._unread((*path, key), below, parents)
        elif path in parents and isinstance(value, list):
            for index, below in enumerate(value):
                yield from self._unread((*path, index), below, parents)
        else:
            yield path


def shown(path: KeyPath) -> str:
    """A path as one word of a message."""
    text = redact_shapes(".".join(str(part) for part in path), "...")
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _LONGEST_KEY else f"{text[: _LONGEST_KEY - 3]}..."
