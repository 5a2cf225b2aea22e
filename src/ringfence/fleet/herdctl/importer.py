"""Reads a fleet of herdctl's, file by file, and brings it over.

Layers are laid upon each other as they are written, and defaults come last: an agent that says one key of `docker:`
keeps all that its fleet says around it, unlike in herdctl.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.environment import expanded
from ringfence.config.layer import Layer, Merged, merge, part_of
from ringfence.config.yaml import read_document
from ringfence.errors import ConfigurationError
from ringfence.fleet.herdctl.agent import DEFAULTED, convert_agent
from ringfence.fleet.herdctl.document import Brought, Level, PreparedJob, name_of
from ringfence.fleet.herdctl.note import Note, Notes
from ringfence.fleet.herdctl.reader import Reader, escaped

FILE_NAMES = ("herdctl.yaml", "herdctl.yml")
FLEET_KEYS = (
    "version",
    "fleet",
    "defaults",
    "working_directory",
    "fleets",
    "agents",
    "webhooks",
    "web",
    "docker",
    "chat",
)
_DEPTH = 8
_MOST_FILES = 1000
_MOST_VALUES = 100_000
"""Of all agents together, with what each of them takes over from its fleets."""
_NOT_READ = "herdctl never reads it"


def is_herdctl(document: Document) -> bool:
    """Whether a file is a fleet of herdctl's, by its name or by its form."""
    if document.file.name in FILE_NAMES:
        return True
    lists = (document.values.get("agents"), document.values.get("fleets"))
    return any(
        isinstance(each, list) and any(isinstance(item, Mapping) and "path" in item for item in each)
        for each in lists
    )


def bring(document: Document, *, environ: Mapping[str, str]) -> tuple[Brought, Notes]:
    """Bring over a fleet and all that it names.

    Args:
        document: The fleet's file.
        environ: Variables that paths of files may name. All others stay as they are written.

    Raises:
        ConfigurationError: With the place in herdctl's files.
    """
    bringing = _Bringing(Notes(), environ, {})
    root = part_of(document, ())
    top = bringing.level(_Fleet(document, merge([root]), (), (document.file.resolve(),), None))
    if (document.file.parent / ".env").exists():
        origin = Origin("project", file=document.file.parent / ".env")
        reason = "its variables are not read; put them into the environment of `ringfence fleet up`"
        bringing.notes.add(Note("left_out", ".env", origin, reason))
    return Brought(top, (document, *bringing.documents.values()), document.file), bringing.notes


@dataclass(frozen=True)
class _Fleet:
    """A fleet's file with what is laid upon it."""

    document: Document
    merged: Merged
    defaults: tuple[Layer, ...]
    """Of the fleets around it, the weakest first."""
    chain: tuple[Path, ...]
    name: str | None


@dataclass
class _Bringing:
    notes: Notes
    environ: Mapping[str, str]
    documents: dict[Path, Document]
    files: int = 0
    values: int = 0

    def level(self, fleet: _Fleet) -> Level:
        """Bring over one fleet, and those below it."""
        origin = Origin("project", file=fleet.document.file, line=1, column=1)
        reader = Reader(fleet.merged, self.notes, origin)
        settings = PreparedJob(origin)
        said = reader.text("fleet", "name") if reader.keys("fleet") else None
        name = name_of(fleet.name or said or "", ())
        if name:
            settings.put(("name",), name, reader.origin("fleet", "name"))
        if said is not None and fleet.name is None and name != said:
            reader.changed(("fleet", "name"), f"it is called {name or 'fleet'!r} here")
        description = reader.text("fleet", "description") or None
        settings.put(("description",), description, reader.origin("fleet", "description"))
        defaults = (*fleet.defaults, self._defaults(reader))
        level = Level(fleet.document, fleet.name, settings, {}, [])
        for index in reader.indices("agents"):
            self._agent(fleet, reader, level, ("agents", index), defaults)
        for index in reader.indices("fleets"):
            level.below.append(self._below(fleet, reader, level, ("fleets", index), defaults))
        _worker_settings(reader, is_top=fleet.name is None)
        return level

    def _defaults(self, reader: Reader) -> Layer:
        reader.keys("defaults")
        reader_values = reader.value("defaults") or {}
        for key in reader_values:
            if key not in DEFAULTED:
                reader.no_effect(
                    ("defaults", key), "herdctl drops it here; write it in the agents that mean it"
                )
        merged = reader.merged

        def origin_of(path: KeyPath, of_key: bool) -> Origin:
            return merged.origin(("defaults", *path), of_key=of_key)

        return Layer({key: value for key, value in reader_values.items() if key in DEFAULTED}, origin_of)

    def _agent(
        self, fleet: _Fleet, reader: Reader, level: Level, path: KeyPath, defaults: tuple[Layer, ...]
    ) -> None:
        document = self._read(fleet, reader, path)
        layers = [*defaults, part_of(document, ()), _overrides(reader, path)]
        origin = Origin("project", file=document.file, line=1, column=1)
        merged = merge(layers)
        self.values += len(merged.sources)
        if self.values > _MOST_VALUES:
            raise reader.wrong(path, f"the agents have more than {_MOST_VALUES} values together")
        inner = Reader(merged, self.notes, origin)
        said = inner.value("name")
        if not isinstance(said, str):
            raise inner.wrong(("name",), "every agent has a name; write it")
        name = name_of(said, ())
        if not name:
            raise inner.wrong(("name",), f"{said[:80]!r} is no name of an agent")
        if name in level.agents:
            raise inner.wrong(("name",), f"there are two agents {name!r} in the fleet; rename one")
        if name != said:
            inner.changed(("name",), f"it is called {name!r} here")
        made = PreparedJob(origin)
        convert_agent(inner, made)
        level.agents[name] = made

    def _below(
        self, fleet: _Fleet, reader: Reader, level: Level, path: KeyPath, defaults: tuple[Layer, ...]
    ) -> Level:
        document = self._read(fleet, reader, path)
        real = document.file.resolve()
        if real in fleet.chain:
            names = " -> ".join(str(each) for each in (*fleet.chain[fleet.chain.index(real) :], real))
            raise reader.wrong((*path, "path"), f"the fleets name each other: {names}")
        if len(fleet.chain) >= _DEPTH:
            raise reader.wrong((*path, "path"), f"more than {_DEPTH} fleets deep")
        merged = merge([part_of(document, ()), _overrides(reader, path)])
        own = merged.values.get("fleet")
        said = reader.text(*path, "name") or (own.get("name") if isinstance(own, Mapping) else None)
        said = said if isinstance(said, str) else document.file.absolute().parent.name
        name = name_of(said, [each.name or "" for each in level.below])
        if not name:
            raise reader.wrong(path, f"{said[:80]!r} is no name of a fleet; write `name:` beside it")
        if name != said:
            reader.changed(
                (*path, "name" if reader.has(*path, "name") else "path"), f"it is called {name!r} here"
            )
        return self.level(_Fleet(document, merged, defaults, (*fleet.chain, real), name))

    def _read(self, fleet: _Fleet, reader: Reader, path: KeyPath) -> Document:
        """The file that a reference names. Words may lead anywhere, as its author can see; links may not."""
        if not reader.is_mapping(*path) or not isinstance(reader.value(*path, "path"), str):
            raise reader.wrong(path, "write a mapping with a `path`")
        place = (*path, "path")
        self.files += 1
        if self.files > _MOST_FILES:
            raise reader.wrong(place, f"more than {_MOST_FILES} files are named")
        origin = reader.origin(*place)
        base = (origin.file or fleet.document.file).parent.absolute()
        try:
            said = expanded(escaped(str(reader.value(*place))), self.environ)
            file = Path(os.path.normpath(base / Path(said).expanduser()))
            if path[0] == "fleets" and file.is_dir():
                file = next(
                    (file / each for each in FILE_NAMES if (file / each).exists()), file / FILE_NAMES[0]
                )
            if base in file.parents and not file.parent.resolve().is_relative_to(base.resolve()):
                raise ValueError(f"a link leads out of {str(base)!r}; name the place that it leads to")
            document = read_document(file)
        except ConfigurationError as exc:
            if exc.line is not None:
                raise
            raise reader.wrong(place, f"{str(exc.file)!r} {exc.message}") from exc
        except (ValueError, RuntimeError) as exc:
            raise reader.wrong(place, str(exc)) from exc
        self.documents.setdefault(file, document)
        return document


def _overrides(reader: Reader, path: KeyPath) -> Layer:
    reader.keys(*path, "overrides")
    values = reader.value(*path, "overrides") or {}

    def origin_of(below: KeyPath, of_key: bool) -> Origin:
        return reader.merged.origin((*path, "overrides", *below), of_key=of_key)

    return Layer(values, origin_of)


def _worker_settings(reader: Reader, *, is_top: bool) -> None:
    """Name what a fleet's file says besides."""
    version = reader.value("version")
    if version not in (None, 1):
        reader.left_out(("version",), "only version 1 is known")
    reader.no_effect(("chat",), "herdctl drops it with a warning")
    reader.no_effect(("workspace",), "an old name of `working_directory`, which herdctl never reads here")
    for key in ("working_directory", "webhooks", "docker"):
        hint = {"docker": "; it reads `defaults.docker`"}.get(key, "")
        reader.no_effect((key,), f"{_NOT_READ} here{hint}")
    if is_top:
        reader.left_out(
            ("web",), "there is no page to look at; `ringfence fleet status` and the socket show the fleet"
        )
    else:
        reader.no_effect(("web",), "herdctl turns it off in a fleet below another")
    reader.rest(FLEET_KEYS)
