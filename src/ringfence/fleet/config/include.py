"""Finds the files of a fleet, from the outermost down. Files of herdctl are converted."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ringfence.config.document import Document, KeyPath, Origin
from ringfence.config.layer import (
    FLEET_KEYS,
    SECTIONS,
    Layer,
    merge,
    only,
    part_of,
    sections_of,
    value_at,
)
from ringfence.config.names import nearest
from ringfence.config.old_names import with_new_names
from ringfence.config.validation import fitted
from ringfence.config.yaml import read_document
from ringfence.errors import ConfigurationError
from ringfence.fleet.config.model import NAME, NAME_ADVICE, FleetSettings, IncludeSettings
from ringfence.fleet.config.raw_values import prepare_values
from ringfence.fleet.herdctl.conversion import ConvertedFleet, Note
from ringfence.fleet.herdctl.importer import convert, is_herdctl

_KEYS = (*FLEET_KEYS, *SECTIONS)
_MAX_DEPTH = 8
_INCLUDED_FLEET_KEYS = ("name", "description")
"""Keys under `fleet:` that an included file may have."""


@dataclass(frozen=True)
class FleetFile:
    """A file that defines agents, and the layers around them."""

    document: Document
    prefix: tuple[str, ...]
    """The names of the fleets that lead to the file."""
    below: tuple[Layer, ...]
    """Layers that the file's agents override, weakest first."""
    above: tuple[Layer, ...]
    """Layers that override all agents of the file, strongest last."""
    overrides: Mapping[str, tuple[Layer, ...]]
    """The layers that override each agent, by agent, strongest last."""
    chain: tuple[Path, ...]
    """The files that lead to this file, and the file itself."""
    converted: ConvertedFleet | None = None
    """The conversion of the file, if it is a file of herdctl."""
    documents: tuple[Document, ...] = ()
    """The files that the conversion has read."""
    notes: tuple[Note, ...] = ()
    """The keys that the conversion has changed."""

    def fleet(self) -> Layer:
        """Return the settings of the fleet as a whole."""
        return (
            part_of(self.document, ("fleet",)) if self.converted is None else self.converted.settings.layer()
        )

    def agents(self) -> dict[str, tuple[Layer, Origin]]:
        """Return the agents of this file by name: the settings of each, and the position of its name.

        Raises:
            ConfigurationError: A name is not valid, or an override names no agent.
        """
        if self.converted is not None:
            found = {name: (each.layer(), each.root) for name, each in self.converted.agents.items()}
        else:
            found = _agents_of(self.document)
        for name, layers in self.overrides.items():
            if "." not in name and name not in found:
                file = str(self.document.file)
                raise (
                    layers[-1]
                    .origin_of((), False)
                    .error(f"overrides: {file!r} has no agent {name!r}; it has {', '.join(found)}")
                )
        return found


def documents_of(files: Iterator[FleetFile] | list[FleetFile]) -> list[Document]:
    """Return the documents of the files of a fleet, each once."""
    return list({doc.file: doc for each in files for doc in (each.document, *each.documents)}.values())


def walk_files(file: Path, below: tuple[Layer, ...], environ: Mapping[str, str]) -> Iterator[FleetFile]:
    """Yield a fleet's file and all files that it includes, outermost first.

    Args:
        file: The outermost file.
        below: Layers that all agents override.
        environ: The variables that the files may refer to.

    Raises:
        ConfigurationError: A file cannot be read, or an `include` is not valid.
    """
    document = with_new_names(read_document(file))
    yield from _walk(FleetFile(document, (), below, (), {}, (file.resolve(),)), environ)


def _walk(file: FleetFile, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    if is_herdctl(file.document):
        yield from _walk_herdctl(file, environ)
        return
    _refuse_unknown_keys(file.document)
    file = replace(file, below=(*file.below, sections_of(file.document)))
    yield file
    includes = file.document.values.get("include") or []
    if not isinstance(includes, list):
        raise file.document.error(("include",), "include: write a list of {file: ...}")
    for index in range(len(includes)):
        yield from _walk_include(file, ("include", index), environ)


def _walk_herdctl(file: FleetFile, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    conversion = convert(file.document, environ=environ)
    for prefix, fleet in conversion.top.walk():
        yield replace(
            file,
            document=fleet.document,
            prefix=(*file.prefix, *prefix),
            overrides=_overrides_below(file.overrides, prefix),
            converted=fleet,
            documents=() if prefix else conversion.documents,
            notes=() if prefix else conversion.notes,
        )


def _walk_include(file: FleetFile, path: KeyPath, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    merged = merge([part_of(file.document, path)])
    prepare_values(merged, environ, prefix=f"include.{path[-1]}.")
    include = fitted(merged, IncludeSettings, of=f"include.{path[-1]}.")
    document = _read_included(file.document, path, include)
    real = document.file.resolve()
    if real in file.chain:
        names = " -> ".join(each.name for each in (*file.chain[file.chain.index(real) :], real))
        raise file.document.error((*path, "file"), f"include: the files include each other: {names}")
    if len(file.chain) >= _MAX_DEPTH:
        raise file.document.error((*path, "file"), f"include: more than {_MAX_DEPTH} files deep")
    above = (only(part_of(file.document, (*path, "overrides")), SECTIONS), *file.above)
    child = FleetFile(document, (), file.below, above, {}, (*file.chain, real))
    # The name of a fleet of herdctl is known only after its conversion.
    converted = list(_walk(child, environ)) if is_herdctl(document) else []
    name = _included_name(converted[0] if converted else child, include, environ)
    overrides = _read_overrides(file, path, name)
    if not converted:
        yield from _walk(replace(child, prefix=(*file.prefix, name), overrides=overrides), environ)
    for each in converted:
        own = _overrides_below(overrides, each.prefix)
        yield replace(each, prefix=(*file.prefix, name, *each.prefix), overrides=own)


def _read_included(document: Document, path: KeyPath, include: IncludeSettings) -> Document:
    file = (document.file.parent / include.file).absolute()
    try:
        return with_new_names(read_document(file))
    except ConfigurationError as exc:
        if exc.line is not None:
            raise
        raise document.error((*path, "file"), f"include: {str(file)!r} {exc.message}") from exc


def _read_overrides(file: FleetFile, include: KeyPath, name: str) -> dict[str, tuple[Layer, ...]]:
    """Return the overrides of single agents of an included file, by their names in it; the outermost come last."""
    path: KeyPath = (*include, "overrides")
    agents = value_at(file.document, (*path, "agents"))
    if agents is not None and not isinstance(agents, Mapping):
        raise file.document.error((*path, "agents"), "overrides.agents: write a mapping of agents")
    unknown = [key for key in value_at(file.document, path) or {} if key not in ("agents", *SECTIONS)]
    if unknown:
        raise file.document.error(
            (*path, unknown[0]),
            f"overrides: there is no key {unknown[0]!r}; known here: agents, {', '.join(SECTIONS)}",
            of_key=True,
        )
    found: dict[str, tuple[Layer, ...]] = {
        str(agent): (part_of(file.document, (*path, "agents", str(agent))),) for agent in agents or {}
    }
    for agent, layers in _overrides_below(file.overrides, (name,)).items():
        found[agent] = (*found.get(agent, ()), *layers)
    return found


def _overrides_below(
    overrides: Mapping[str, tuple[Layer, ...]], prefix: tuple[str, ...]
) -> dict[str, tuple[Layer, ...]]:
    """Return the overrides of the agents below a prefix, by their names without the prefix."""
    start = "".join(f"{part}." for part in prefix)
    return {name.removeprefix(start): layers for name, layers in overrides.items() if name.startswith(start)}


def _agents_of(document: Document) -> dict[str, tuple[Layer, Origin]]:
    agents = document.values.get("agents") or {}
    if not isinstance(agents, Mapping):
        raise document.error(("agents",), "agents: write a mapping of names to agents")
    for name in agents:
        if not NAME.fullmatch(name):
            raise document.error(
                ("agents", name), f"agents: {name!r} is not a valid name; {NAME_ADVICE}", of_key=True
            )
    layers = {name: part_of(document, ("agents", name)) for name in agents}
    return {name: (layer, layer.origin_of((), True)) for name, layer in layers.items()}


def _refuse_unknown_keys(document: Document) -> None:
    for key in document.values:
        if key not in _KEYS:
            guess = nearest(key, _KEYS)
            hint = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(_KEYS)}"
            raise document.error((key,), f"there is no key {key!r}; {hint}", of_key=True)


def _included_name(file: FleetFile, include: IncludeSettings, environ: Mapping[str, str]) -> str:
    """Return the prefix of the names of an included file's agents. Only the outermost file configures the fleet."""
    fleet = file.fleet()
    for key in fleet.values:
        if key in FleetSettings.model_fields and key not in _INCLUDED_FLEET_KEYS:
            raise fleet.origin_of((key,), True).error(
                f"fleet.{key}: it has no effect in an included file; write it in the outermost one, or include the "
                "agents from a file of their own"
            )
    merged = merge([fleet])
    prepare_values(merged, environ, prefix="fleet.")
    settings = fitted(merged, FleetSettings, of="fleet.")
    if include.name is None and "name" not in settings.model_fields_set:
        raise ConfigurationError(
            "this included file has no name; write `fleet: {name: ...}` here, or `name:` where it is included",
            file=file.document.file,
        )
    return include.name or settings.name
