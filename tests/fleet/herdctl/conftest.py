"""Fixtures that write and convert herdctl fleets in a directory of their own."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from ringfence.config.yaml import read_document
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_fleet
from ringfence.fleet.herdctl.importer import convert


@dataclass(frozen=True)
class Outcome:
    """The conversion of one fleet."""

    agents: Mapping[str, Mapping[str, Any]]
    fleet: Mapping[str, Any]
    notes: frozenset[tuple[str, str, str]]
    """Key, kind and reason."""

    @property
    def named(self) -> dict[str, str]:
        """Each key that the notes name, with the kind of its note."""
        return {key: kind for key, kind, _ in self.notes}


def outcome(fleet: Mapping[str, Any], agent: Mapping[str, Any]) -> Outcome:
    """Convert a fleet with one agent named `a`, from the values of their two files."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "a.yaml").write_text(json.dumps({"name": "a", **agent}, ensure_ascii=False))
        file = directory / "herdctl.yaml"
        file.write_text(json.dumps({"agents": [{"path": "a.yaml"}], **fleet}, ensure_ascii=False))
        conversion = convert(read_document(file), environ={})
        agents = {name: settings.values for name, settings in conversion.top.agents.items()}
        found = json.loads(json.dumps(agents).replace(str(directory), "DIR"))
        return Outcome(
            found,
            conversion.top.settings.values,
            frozenset((note.key, note.kind, note.reason) for note in conversion.notes),
        )


Fleets = Callable[..., Path]
Read = Callable[..., Fleet]


@pytest.fixture
def fleets(tmp_path: Path) -> Fleets:
    """Return a function that writes herdctl.yaml and other files by their names, and returns the path of the first."""

    def act(text: str, **files: str) -> Path:
        for name, content in {"herdctl": text, **files}.items():
            file = tmp_path / "herd" / f"{name.replace('__', '/')}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return tmp_path / "herd" / "herdctl.yaml"

    return act


@pytest.fixture
def read(fleets: Fleets) -> Read:
    """Return a function that writes files and loads the fleet."""

    def act(text: str, *, environ: dict[str, str] | None = None, **files: str) -> Fleet:
        return load_fleet(fleets(text, **files), environ=environ or {})

    return act
