"""A configuration of ours as it is made of another's: values, and the places that they come from."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.layer import Layer

_LONGEST_NAME = 40


@dataclass
class PreparedJob:
    """Values of ours, and where each was said by another name."""

    root: Origin
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def put(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Say a value; None says nothing."""
        if value is None:
            return
        branch = self.values
        for part in path[:-1]:
            branch = branch.setdefault(str(part), {})
        branch[str(path[-1])] = value
        self.origins[path] = origin

    def add(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Put a value to the end of a list."""
        found: Any = self.values
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        items = [*(found or []), value]
        first = self.origins.get(path, origin)
        self.put(path, items, first)
        self.origins[(*path, len(items) - 1)] = origin

    def layer(self) -> Layer:
        """It as a layer."""
        return Layer(self.values, self._blame)

    def _blame(self, path: KeyPath, _of_key: bool) -> Origin:
        return self.origin_of(path)

    def origin_of(self, path: KeyPath) -> Origin:
        """Where a value was said, in herdctl's files."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        below = [origin for known, origin in self.origins.items() if known[: len(path)] == path]
        return below[0] if below and path else self.root


@dataclass
class Level:
    """One fleet: its agents by our names, and the fleets below it."""

    document: Document
    name: str | None
    """What stands before its agents' names; None: nothing, it is the first."""
    settings: PreparedJob
    agents: dict[str, PreparedJob]
    below: list["Level"]

    def walk(self, prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], "Level"]]:
        """It and all below, each with what stands before its agents' names."""
        found = [(prefix, self)]
        for level in self.below:
            found += level.walk((*prefix, level.name or ""))
        return found


@dataclass(frozen=True)
class Brought:
    """A whole fleet as it came over."""

    top: Level
    documents: tuple[Document, ...]
    """Every file that was read, the first one first."""
    file: Path


def name_of(text: str, taken: Collection[str]) -> str:
    """The nearest name of ours that is free; empty if there is nothing in it to make one of."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", text[:200].lower()).strip("-_")[:_LONGEST_NAME].strip("-_")
    name, number = plain, 2
    while name and name in taken:
        tail = f"-{number}"
        name, number = f"{plain[: _LONGEST_NAME - len(tail)]}{tail}", number + 1
    return name
