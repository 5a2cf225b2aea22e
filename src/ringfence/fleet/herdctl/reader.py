"""Reads merged values of herdctl's files key by key, and reports the keys that no converter has read."""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ringfence.config.document import KeyPath, Origin
from ringfence.config.environment import expanded
from ringfence.config.layer import Merged
from ringfence.config.names import nearest
from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.fleet.herdctl.conversion import ConvertedSettings, Kind, Note, add_note
from ringfence.secret import redact_shapes

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?\}")
_MAX_SHOWN_KEY = 120


class LimitExceeded(ConfigurationError):
    """The fleet exceeds the maximum size. Reading stops."""


def escape(text: str) -> str:
    """Escape every dollar sign that does not begin a variable of herdctl, so that Ringfence does not interpret it."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0:
        reference = _REFERENCE.match(text, dollar)
        end = reference.end() if reference else dollar + 1
        is_plain = reference is None and text[end : end + 1] not in ("$", "{")
        parts += [text[at:dollar], text[dollar:end] if reference or is_plain else "$$"]
        at = end
    return "".join(parts) + text[at:]


def has_variable(value: object) -> bool:
    """Whether a value depends on a variable."""
    return isinstance(value, str) and _REFERENCE.search(value) is not None


class Reader:
    """Reads the values of an agent or a fleet, and writes the converted settings.

    A path of keys that leads to no value means an absent value, which gets no note.

    Args:
        merged: The values.
        root: The origin of values that have no origin of their own.
        notes: Receives the notes on keys that are not converted unchanged.
        errors: Receives the errors that `collected` catches.
        environ: The variables that `expanded` replaces.
    """

    def __init__(
        self,
        merged: Merged,
        root: Origin,
        notes: dict[tuple[str, str, str], Note],
        errors: list[RingfenceError],
        environ: Mapping[str, str],
    ) -> None:
        self.merged = merged
        self.target = ConvertedSettings(root)
        self._notes = notes
        self._errors = errors
        self._environ = environ
        self._read: set[KeyPath] = set()
        self._opened: set[KeyPath] = set()

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect an error, so that all errors of a fleet are reported at once."""
        try:
            yield
        except LimitExceeded:
            raise
        except RingfenceError as exc:
            self._errors.append(exc)

    # --- values ---

    def value(self, *path: str | int) -> Any:
        """Return the value at a path; None if there is none."""
        self._read.add(path)
        return self._at(path)

    def text(self, *path: str | int) -> str | None:
        """Return a text, or a number as a text, with herdctl's variables."""
        value = self.value(*path)
        if value is None or isinstance(value, str):
            return None if value is None else escape(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(path, "write a text")
        return str(value)

    def expanded(self, *path: str | int) -> str | None:
        """Return a text with its variables replaced."""
        value = self.value(*path)
        if value is not None and not isinstance(value, str):
            raise self.error(path, "write a text")
        try:
            return None if value is None else expanded(escape(value), self._environ)
        except ValueError as exc:
            raise self.error(path, str(exc)) from exc

    def scalar(self, *path: str | int) -> Any:
        """Return a text, number or boolean, which the models of the configuration validate later."""
        value = self.value(*path)
        if isinstance(value, list | Mapping):
            raise self.error(path, "write a single value")
        return escape(value) if isinstance(value, str) else value

    def flag(self, *path: str | int) -> bool | None:
        """Return a boolean. A variable instead of a boolean is left out, with a note."""
        value = self.value(*path)
        if has_variable(value):
            self.left_out(path, "it depends on a variable; write true or false")
            return None
        if value is not None and not isinstance(value, bool):
            raise self.error(path, "write true or false")
        return value

    def choice(self, path: KeyPath, known: Collection[str]) -> str | None:
        """Return one of several words. A variable instead of a word is left out, with a note."""
        value = self.value(*path)
        if has_variable(value):
            self.left_out(path, f"it depends on a variable; write one of {', '.join(known)}")
            return None
        if value is not None and value not in known:
            raise self.error(path, f"write one of {', '.join(known)}")
        return str(value) if value is not None else None

    def keys(self, *path: str | int) -> list[str]:
        """Return the keys of a mapping."""
        value = self._at(path)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(path, "write a mapping")
        (self._opened if value else self._read).add(path)
        return list(value or ())

    def indices(self, *path: str | int) -> range:
        """Return the indices of a list."""
        value = self._at(path)
        if value is not None and not isinstance(value, list):
            raise self.error(path, "write a list")
        (self._opened if value else self._read).add(path)
        return range(len(value or ()))

    def texts(self, *path: str | int) -> list[str] | None:
        """Return a list of texts; None if there is none."""
        if not self.has(*path):
            return None
        return [self.text(*path, index) or "" for index in self.indices(*path)]

    def table(self, *path: str | int) -> dict[str, str]:
        """Return a mapping of texts."""
        return {key: self.text(*path, key) or "" for key in self.keys(*path)}

    def has(self, *path: str | int) -> bool:
        """Whether there is a value at a path."""
        return self._at(path) is not None

    def is_mapping(self, *path: str | int) -> bool:
        """Whether there is a mapping at a path."""
        return isinstance(self._at(path), Mapping)

    def origin(self, *path: str | int) -> Origin:
        """Return the origin of the value at a path."""
        origin = self.merged.blame(path) if path else self.target.root
        return origin if origin.file is not None else self.target.root

    def error(self, path: KeyPath, message: str) -> RingfenceError:
        """Return an error about the value at a path."""
        return self.origin(*path).error(f"{shown(path)}: {message}")

    @property
    def is_concurrent(self) -> bool:
        """Whether several jobs of the agent run, or may run, at the same time."""
        return self._at(("instances", "max_concurrent")) not in (None, 1, "1")

    # --- settings ---

    def put(self, to: KeyPath, value: Any, *source: str | int) -> None:
        """Set a setting that comes from the value at `source`; None leaves it unset."""
        self.target.put(to, value, self.origin(*source))

    def copy_text(self, to: KeyPath, *source: str | int) -> None:
        """Set a setting to the text at `source`, unless the text is empty."""
        self.put(to, self.text(*source) or None, *source)

    def copy(self, to: KeyPath, *source: str | int) -> None:
        """Set a setting to the text, number or boolean at `source`."""
        self.put(to, self.scalar(*source), *source)

    def append(self, to: KeyPath, value: Any, *source: str | int) -> None:
        """Append a value that comes from `source` to a list."""
        self.target.append(to, value, self.origin(*source))

    def rename(self, alias: str, key: str) -> None:
        """Treat `alias` as another name of `key`, which is preferred if both are set."""
        if not self.has(alias):
            return
        if self.has(key):
            self.no_effect((alias,), f"`{key}` is set as well")
            return
        self.no_effect((alias,), f"an old name of `{key}`")
        self.merged.values[key] = self._at((alias,))
        for path in [path for path in self.merged.sources if path[0] == alias]:
            self.merged.sources[(key, *path[1:])] = self.merged.sources[path]

    # --- notes ---

    def left_out(self, path: KeyPath, reason: str) -> None:
        """If a key is set, note that it is not converted."""
        self._note("left_out", path, reason)

    def changed(self, path: KeyPath, reason: str) -> None:
        """If a key is set, note that it is converted to something else."""
        self._note("changed", path, reason)

    def no_effect(self, path: KeyPath, reason: str) -> None:
        """If a key is set, note that nothing is lost without it."""
        self._note("no_effect", path, reason)

    def report_unknown(self, known: Collection[str]) -> None:
        """Note every key that was not read.

        Args:
            known: The known top-level keys, for a hint at the most similar one.
        """
        parents = {path[:length] for path in self._read for length in range(len(path))} | self._opened
        for path in self._unread((), self.merged.values, parents | {()}):
            guess = nearest(str(path[0]), known) if len(path) == 1 else None
            hint = f"; did you mean {guess!r}?" if guess else ""
            self.left_out(path, f"herdctl has no such key{hint}")

    def _note(self, kind: Kind, path: KeyPath, reason: str) -> None:
        self._read.add(path)
        if self.has(*path):
            add_note(self._notes, Note(kind, shown(path), self.origin(*path), reason))

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
        if path in parents and isinstance(value, Mapping | list):
            for key, below in value.items() if isinstance(value, Mapping) else enumerate(value):
                yield from self._unread((*path, key), below, parents)
        else:
            yield path


def shown(path: KeyPath) -> str:
    """Return a path for messages: dotted, printable, bounded, and without secrets."""
    text = redact_shapes(".".join(str(part) for part in path), "...")
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _MAX_SHOWN_KEY else f"{text[: _MAX_SHOWN_KEY - 3]}..."
