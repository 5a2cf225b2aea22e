"""Reads a fleet of herdctl with all files that it refers to, and converts it.

Layers are merged as written, and defaults are applied last: unlike in herdctl, an agent that sets one key of `docker:`
keeps the other keys that its fleet sets.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.layer import Layer, Merged, merge, part_of
from ringfence.config.validation import combine
from ringfence.config.yaml import read_document
from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.fleet.herdctl.agent import DEFAULTED, convert_agent
from ringfence.fleet.herdctl.conversion import Conversion, ConvertedFleet, Note, add_note, valid_name
from ringfence.fleet.herdctl.reader import LimitExceeded, Reader
from ringfence.fleet.herdctl.schedules import SESSION_DEFAULT

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
_MAX_DEPTH = 8
_MAX_FILES = 1000
_MAX_VALUES = 100_000
"""The maximum number of values of all agents together, including inherited ones."""


def is_herdctl(document: Document) -> bool:
    """Whether a file is a fleet of herdctl, by its name or its form."""
    if document.file.name in FILE_NAMES:
        return True
    lists = (document.values.get("agents"), document.values.get("fleets"))
    return any(
        isinstance(each, list) and any(isinstance(item, Mapping) and "path" in item for item in each)
        for each in lists
    )


def convert(document: Document, *, environ: Mapping[str, str]) -> Conversion:
    """Convert a fleet and all files that it refers to.

    Args:
        document: The fleet's file.
        environ: The variables for names and file paths. Other variables stay references.

    Raises:
        ConfigurationError: herdctl's files contain mistakes. The error names every mistake with its position.
    """
    conversion = _Converter(environ)
    fleet = _Fleet(document, merge([part_of(document, ())]), (), (document.file.resolve(),), None)
    try:
        top = conversion.convert_fleet(fleet)
    except LimitExceeded as exc:
        raise combine([*conversion.errors, exc]) from exc
    if conversion.errors:
        raise combine(conversion.errors)
    env_file = document.file.parent / ".env"
    if env_file.exists():
        reason = "its variables are not read; put them into the environment of `ringfence fleet up`"
        add_note(conversion.notes, Note("left_out", ".env", Origin("project", file=env_file), reason))
    return Conversion(top, (document, *conversion.documents.values()), tuple(conversion.notes.values()))


@dataclass(frozen=True)
class _Fleet:
    """A fleet's file, merged with its overrides."""

    document: Document
    merged: Merged
    defaults: tuple[Layer, ...]
    """The defaults of the enclosing fleets, weakest first."""
    chain: tuple[Path, ...]
    """The files that lead to the fleet's file, and that file."""
    name: str | None


@dataclass
class _Converter:
    environ: Mapping[str, str]
    notes: dict[tuple[str, str, str], Note] = field(default_factory=dict)
    """The notes by origin, key and reason, so that a key which several agents inherit is noted once."""
    errors: list[RingfenceError] = field(default_factory=list)
    documents: dict[Path, Document] = field(default_factory=dict)
    file_count: int = 0
    value_count: int = 0

    def convert_fleet(self, fleet: _Fleet) -> ConvertedFleet:
        """Convert a fleet with its agents and nested fleets."""
        reader = self._reader(fleet.merged, fleet.document)
        defaults = fleet.defaults
        with reader.collected():
            _convert_name(reader, fleet)
        with reader.collected():
            defaults = (*defaults, _defaults(reader))
        converted = ConvertedFleet(fleet.document, fleet.name, reader.target, {}, [])
        with reader.collected():
            for index in reader.indices("agents"):
                with reader.collected():
                    self._convert_agent(fleet, reader, converted, ("agents", index), defaults)
        with reader.collected():
            for index in reader.indices("fleets"):
                with reader.collected():
                    nested = self._nested_fleet(fleet, reader, converted, ("fleets", index), defaults)
                    converted.nested.append(self.convert_fleet(nested))
        _note_unused(reader, is_top=fleet.name is None)
        return converted

    def _reader(self, merged: Merged, document: Document) -> Reader:
        root = Origin("project", file=document.file, line=1, column=1)
        return Reader(merged, root, self.notes, self.errors, self.environ)

    def _convert_agent(
        self,
        fleet: _Fleet,
        reader: Reader,
        converted: ConvertedFleet,
        path: KeyPath,
        defaults: tuple[Layer, ...],
    ) -> None:
        document = self._read(fleet, reader, path)
        merged = merge([*defaults, part_of(document, ()), _overrides(reader, path)])
        self.value_count += len(merged.sources)
        if self.value_count > _MAX_VALUES:
            raise _limit_exceeded(reader, path, f"the agents have more than {_MAX_VALUES} values together")
        agent = self._reader(merged, document)
        with agent.collected():
            converted.agents[_agent_name(agent, converted)] = agent.target
        convert_agent(agent)
        if not agent.has("session", "timeout"):
            add_note(self.notes, Note("changed", "session.timeout", reader.target.root, SESSION_DEFAULT))

    def _nested_fleet(
        self,
        fleet: _Fleet,
        reader: Reader,
        converted: ConvertedFleet,
        path: KeyPath,
        defaults: tuple[Layer, ...],
    ) -> _Fleet:
        document = self._read(fleet, reader, path)
        file = document.file.resolve()
        if file in fleet.chain:
            names = " -> ".join(str(each) for each in (*fleet.chain[fleet.chain.index(file) :], file))
            raise reader.error((*path, "path"), f"the fleets name each other: {names}")
        if len(fleet.chain) >= _MAX_DEPTH:
            raise reader.error((*path, "path"), f"more than {_MAX_DEPTH} fleets deep")
        merged = merge([part_of(document, ()), _overrides(reader, path)])
        nested = self._reader(merged, document)
        text = reader.expanded(*path, "name")
        if text is None and nested.is_mapping("fleet") and isinstance(nested.value("fleet", "name"), str):
            text = nested.expanded("fleet", "name")
        text = text or document.file.absolute().parent.name
        name = valid_name(text, [each.name or "" for each in converted.nested])
        if not name:
            raise reader.error(path, f"{text[:80]!r} cannot be the name of a fleet; write `name:` beside it")
        if name != text:
            named = "name" if reader.has(*path, "name") else "path"
            reader.changed((*path, named), f"it is called {name!r} here")
        return _Fleet(document, merged, defaults, (*fleet.chain, file), name)

    def _read(self, fleet: _Fleet, reader: Reader, path: KeyPath) -> Document:
        """Read the file that `path` names. The name may lead anywhere, as its author can see; a symlink may not."""
        if not reader.is_mapping(*path) or not isinstance(reader.value(*path, "path"), str):
            raise reader.error(path, "write a mapping with a `path`")
        source = (*path, "path")
        self.file_count += 1
        if self.file_count > _MAX_FILES:
            raise _limit_exceeded(reader, source, f"more than {_MAX_FILES} files are named")
        name = reader.expanded(*source) or ""
        base = (reader.origin(*source).file or fleet.document.file).parent.absolute()
        try:
            file = Path(os.path.normpath(base / Path(name).expanduser()))
            if path[0] == "fleets" and file.is_dir():
                files = [file / each for each in FILE_NAMES]
                file = next((each for each in files if each.exists()), files[0])
            if base in file.parents and not file.parent.resolve().is_relative_to(base.resolve()):
                raise ValueError(f"a link leads out of {str(base)!r}; name the target of the link")
            document = read_document(file)
        except ConfigurationError as exc:
            if exc.line is not None:
                raise
            raise reader.error(source, f"{str(exc.file)!r} {exc.message}") from exc
        except (ValueError, RuntimeError) as exc:
            raise reader.error(source, str(exc)) from exc
        self.documents.setdefault(file, document)
        return document


def _limit_exceeded(reader: Reader, path: KeyPath, message: str) -> RingfenceError:
    error = reader.error(path, message)
    assert isinstance(error, ConfigurationError)
    return LimitExceeded(error.message, file=error.file, line=error.line, column=error.column)


def _convert_name(reader: Reader, fleet: _Fleet) -> None:
    text = reader.expanded("fleet", "name") if reader.keys("fleet") else None
    name = valid_name(fleet.name or text or "")
    reader.put(("name",), name or None, "fleet", "name")
    if fleet.name is None and name != reader.value("fleet", "name"):
        reader.changed(("fleet", "name"), f"it is called {name or 'fleet'!r} here")
    reader.copy_text(("description",), "fleet", "description")


def _agent_name(agent: Reader, converted: ConvertedFleet) -> str:
    text = agent.expanded("name")
    if text is None:
        raise agent.error(("name",), "an agent needs a name; write it")
    name = valid_name(text)
    if not name:
        raise agent.error(("name",), f"{text[:80]!r} cannot be the name of an agent")
    if name in converted.agents:
        raise agent.error(("name",), f"there are two agents {name!r} in the fleet; rename one")
    if name != agent.value("name"):
        agent.changed(("name",), f"it is called {name!r} here")
    return name


def _defaults(reader: Reader) -> Layer:
    keys = reader.keys("defaults")
    for key in keys:
        if key not in DEFAULTED:
            reader.no_effect(("defaults", key), "herdctl ignores it here; write it in the agents")
    values = reader.value("defaults") or {}
    return _layer(reader, ("defaults",), {key: values[key] for key in keys if key in DEFAULTED})


def _overrides(reader: Reader, path: KeyPath) -> Layer:
    reader.keys(*path, "overrides")
    return _layer(reader, (*path, "overrides"), reader.value(*path, "overrides") or {})


def _layer(reader: Reader, path: KeyPath, values: Mapping[str, object]) -> Layer:
    def origin_of(below: KeyPath, of_key: bool) -> Origin:
        return reader.merged.origin((*path, *below), of_key=of_key)

    return Layer(values, origin_of)


def _note_unused(reader: Reader, *, is_top: bool) -> None:
    """Add notes for the keys of a fleet's file that concern neither agents nor nested fleets."""
    if reader.value("version") not in (None, 1):
        reader.left_out(("version",), "only version 1 is known")
    reader.no_effect(("chat",), "herdctl ignores it with a warning")
    reader.no_effect(("workspace",), "an old name of `working_directory`, which herdctl never reads here")
    for key in ("working_directory", "webhooks", "docker"):
        hint = "; it reads `defaults.docker`" if key == "docker" else ""
        reader.no_effect((key,), f"herdctl never reads it here{hint}")
    if is_top:
        reader.left_out(("web",), "`ringfence serve` shows the fleet in a browser")
    else:
        reader.no_effect(("web",), "herdctl turns it off in a nested fleet")
    reader.report_unknown(FLEET_KEYS)
