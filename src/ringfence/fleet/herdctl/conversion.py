"""Defines the result of a conversion: settings with their origins in herdctl's files, and notes on differences."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.layer import Layer
from ringfence.frozen import frozen

_MAX_NAME_LENGTH = 40
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

Kind = Literal["left_out", "changed", "no_effect"]
"""`left_out`: Ringfence has no equivalent. `changed`: Ringfence does this differently. `no_effect`: nothing is lost,
because herdctl ignores the key as well or because nothing needs to be done."""

LABELS = {"left_out": "left out", "changed": "changed", "no_effect": "nothing is lost"}


@frozen
class Note:
    """A key of herdctl's files that is not converted unchanged."""

    kind: Kind
    key: str
    """The dotted path of the key in herdctl's file."""
    origin: Origin
    reason: str

    @property
    def text(self) -> str:
        """What happens to the key, and why or what to do."""
        return f"{LABELS[self.kind]}: {self.reason}"

    def __str__(self) -> str:
        return f"{self.origin}: {self.key}: {self.text}"


def add_note(notes: dict[tuple[str, str, str], Note], note: Note) -> None:
    """Add a note, unless the same note exists already."""
    notes.setdefault((str(note.origin), note.key, note.reason), note)


@dataclass
class ConvertedSettings:
    """Settings of an agent or a fleet, each with its origin in herdctl's files."""

    root: Origin
    """The origin of settings that have no origin of their own."""
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def put(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Set a value; None leaves the setting unset."""
        if value is None:
            return
        branch = self.values
        for part in path[:-1]:
            branch = branch.setdefault(str(part), {})
        branch[str(path[-1])] = value
        self.origins[path] = origin

    def append(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Append a value to a list."""
        branch: Any = self.values
        for part in path:
            branch = branch.get(part) if isinstance(branch, dict) else None
        items = [*(branch or []), value]
        self.put(path, items, self.origins.get(path, origin))
        self.origins[(*path, len(items) - 1)] = origin

    def layer(self) -> Layer:
        """Return the settings as a layer of a configuration."""
        return Layer(self.values, lambda path, _of_key: self.origin_of(path))

    def origin_of(self, path: KeyPath) -> Origin:
        """Return the origin of a value, or of the nearest value around or below it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        below = [origin for known, origin in self.origins.items() if known[: len(path)] == path]
        return below[0] if below and path else self.root


@dataclass
class ConvertedFleet:
    """One fleet file of herdctl, with the agents and nested fleets that it names."""

    document: Document
    name: str | None
    """The prefix of its agents' names; None for the outermost fleet."""
    settings: ConvertedSettings
    agents: dict[str, ConvertedSettings]
    nested: list["ConvertedFleet"]

    def walk(self, prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], "ConvertedFleet"]]:
        """Yield this fleet and all nested ones, each with the names that lead to it."""
        yield prefix, self
        for fleet in self.nested:
            yield from fleet.walk((*prefix, fleet.name or ""))


@dataclass(frozen=True)
class Conversion:
    """A converted fleet with all nested fleets."""

    top: ConvertedFleet
    documents: tuple[Document, ...]
    """Every file that was read, outermost first."""
    notes: tuple[Note, ...]

    @property
    def file(self) -> Path:
        """The outermost file."""
        return self.documents[0].file

    def unset_variables(self, environ: Mapping[str, str]) -> list[str]:
        """Return the unset variables to which the settings refer without a default, in alphabetical order."""
        names = {
            name
            for _, fleet in self.top.walk()
            for settings in (fleet.settings, *fleet.agents.values())
            for text in _texts(settings.values)
            for name in _REFERENCE.findall(text.replace("$$", ""))
        }
        return sorted(name for name in names if name not in environ)


def valid_name(text: str, taken: Collection[str] = ()) -> str:
    """Return the valid name nearest to `text` that is not taken; empty if `text` has no usable character."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", text[:200].lower()).strip("-_")[:_MAX_NAME_LENGTH].strip("-_")
    name, number = plain, 2
    while name and name in taken:
        suffix = f"-{number}"
        name, number = f"{plain[: _MAX_NAME_LENGTH - len(suffix)]}{suffix}", number + 1
    return name


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _texts(below)
