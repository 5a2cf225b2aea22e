"""The files that make a fleet, from the first one down: those of ours, and herdctl's, which are read as they are."""

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
from ringfence.fleet.config.interpolation import interpolate
from ringfence.fleet.config.model import NAME, NAME_ADVICE, FleetSettings, IncludeSettings
from ringfence.fleet.herdctl.conversion import ConvertedFleet, Note
from ringfence.fleet.herdctl.importer import convert, is_herdctl

_KEYS = (*FLEET_KEYS, *SECTIONS)
_DEPTH = 8
_OF_EACH_FLEET = ("name", "description")


@dataclass(frozen=True)
class FleetFile:
    """A file on the way down to agents."""

    document: Document
    prefix: tuple[str, ...]
    below: tuple[Layer, ...]
    """Layers that are weaker than it."""
    above: tuple[Layer, ...]
    """Overrides for all of its agents, the strongest last."""
    overrides: Mapping[str, tuple[Layer, ...]]
    """Overrides for single agents, the strongest last."""
    chain: tuple[Path, ...]
    """The files that led here."""
    level: ConvertedFleet | None = None
    """What was made of it, if it is one of herdctl's."""
    documents: tuple[Document, ...] = ()
    """Of herdctl's: every file that was read for it."""
    notes: tuple[Note, ...] = ()
    """Of herdctl's: what does not come over as it stands."""

    def fleet(self) -> Layer:
        """What it says of the fleet as a whole."""
        return part_of(self.document, ("fleet",)) if self.level is None else self.level.settings.layer()

    def agents(self) -> dict[str, tuple[Layer, Origin]]:
        """Its own agents by name: what it says of each, and where that begins.

        Raises:
            ConfigurationError: A name is none, or an override names nobody.
        """
        if self.level is not None:
            found = {name: (made.layer(), made.root) for name, made in self.level.agents.items()}
        else:
            found = _said_agents(self.document)
        for name, layers in self.overrides.items():
            if "." not in name and name not in found:
                raise (
                    layers[-1]
                    .origin_of((), False)
                    .error(
                        f"overrides: {str(self.document.file)!r} has no agent {name!r}; it has {', '.join(found)}"
                    )
                )
        return found


def first_file(file: Path, below: tuple[Layer, ...]) -> FleetFile:
    """The file that was asked for.

    Raises:
        ConfigurationError: It cannot be read.
    """
    document = with_new_names(read_document(file))
    return FleetFile(document, (), below, (), {}, (file.resolve(),))


def walk(file: FleetFile, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    """A file and all that it includes, itself first.

    Raises:
        ConfigurationError: With the place.
    """
    if is_herdctl(file.document):
        yield from _brought(file, environ)
        return
    _refuse_unknown(file.document)
    file = replace(file, below=(*file.below, sections_of(file.document)))
    yield file
    raw = file.document.values.get("include") or []
    if not isinstance(raw, list):
        raise file.document.error(("include",), "include: write a list of {file: ...}")
    for index in range(len(raw)):
        yield from _included(file, ("include", index), environ)


def _included(file: FleetFile, path: KeyPath, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    merged = merge([part_of(file.document, path)])
    interpolate(merged, environ, of=f"include.{path[-1]}.")
    include = fitted(merged, IncludeSettings, of=f"include.{path[-1]}.")
    document = _read((file.document.file.parent / include.file).absolute(), (file.document, (*path, "file")))
    real = document.file.resolve()
    if real in file.chain:
        names = " -> ".join(each.name for each in (*file.chain[file.chain.index(real) :], real))
        raise file.document.error((*path, "file"), f"include: the files include each other: {names}")
    if len(file.chain) >= _DEPTH:
        raise file.document.error((*path, "file"), f"include: more than {_DEPTH} files deep")
    above = (only(part_of(file.document, (*path, "overrides")), SECTIONS), *file.above)
    child = FleetFile(document, (), file.below, above, {}, (*file.chain, real))
    is_brought = is_herdctl(document)
    files = list(walk(child, environ)) if is_brought else [child]
    name = _name(files[0], include, environ)
    overrides = _overrides(file, path, name)
    if not is_brought:
        yield from walk(replace(child, prefix=(*file.prefix, name), overrides=overrides), environ)
        return
    for each in files:
        own = _below(overrides, each.prefix)
        yield replace(each, prefix=(*file.prefix, name, *each.prefix), overrides=own)


def _brought(file: FleetFile, environ: Mapping[str, str]) -> Iterator[FleetFile]:
    conversion = convert(file.document, environ=environ)
    for prefix, level in conversion.top.walk():
        is_first = not prefix
        yield replace(
            file,
            document=level.document,
            prefix=(*file.prefix, *prefix),
            overrides=_below(file.overrides, prefix),
            level=level,
            documents=conversion.documents if is_first else (),
            notes=conversion.notes if is_first else (),
        )


def _below(
    overrides: Mapping[str, tuple[Layer, ...]], prefix: tuple[str, ...]
) -> dict[str, tuple[Layer, ...]]:
    """Overrides by the names that agents have under a prefix."""
    start = "".join(f"{part}." for part in prefix)
    return {name.removeprefix(start): layers for name, layers in overrides.items() if name.startswith(start)}


def _overrides(file: FleetFile, include: KeyPath, name: str) -> dict[str, tuple[Layer, ...]]:
    """Overrides for agents of an included file, by their names in there; those from further out last."""
    path: KeyPath = (*include, "overrides", "agents")
    said = value_at(file.document, path)
    if said is not None and not isinstance(said, Mapping):
        raise file.document.error(path, "overrides.agents: write a mapping of agents")
    overrides = value_at(file.document, (*include, "overrides"))
    unknown = [key for key in overrides or {} if key not in ("agents", *SECTIONS)]
    if unknown:
        raise file.document.error(
            (*include, "overrides", unknown[0]),
            f"overrides: there is no key {unknown[0]!r}; known here: agents, {', '.join(SECTIONS)}",
            of_key=True,
        )
    found: dict[str, tuple[Layer, ...]] = {
        str(agent): (part_of(file.document, (*path, str(agent))),) for agent in said or {}
    }
    for rest, layers in _below(file.overrides, (name,)).items():
        found[rest] = (*found.get(rest, ()), *layers)
    return found


def _said_agents(document: Document) -> dict[str, tuple[Layer, Origin]]:
    raw = document.values.get("agents") or {}
    if not isinstance(raw, Mapping):
        raise document.error(("agents",), "agents: write a mapping of names to agents")
    for name in raw:
        if not NAME.fullmatch(name):
            raise document.error(
                ("agents", name),
                f"agents: {name!r} is no name; {NAME_ADVICE}",
                of_key=True,
            )
    layers = {name: part_of(document, ("agents", name)) for name in raw}
    return {name: (layer, layer.origin_of((), True)) for name, layer in layers.items()}


def _read(file: Path, said: tuple[Document, KeyPath]) -> Document:
    try:
        return with_new_names(read_document(file))
    except ConfigurationError as exc:
        if exc.line is None:
            raise said[0].error(said[1], f"include: {str(file)!r} {exc.message}") from exc
        raise


def _refuse_unknown(document: Document) -> None:
    for key in document.values:
        if key not in _KEYS:
            guess = nearest(key, _KEYS)
            hint = f"did you mean {guess!r}?" if guess else f"known here: {', '.join(_KEYS)}"
            raise document.error((key,), f"there is no key {key!r}; {hint}", of_key=True)


def _name(file: FleetFile, include: IncludeSettings, environ: Mapping[str, str]) -> str:
    """What stands before an included file's agents' names. Of the fleet as a whole the first file alone decides."""
    said = file.fleet()
    idle = [key for key in said.values if key in FleetSettings.model_fields and key not in _OF_EACH_FLEET]
    if idle:
        raise said.origin_of((idle[0],), True).error(
            f"fleet.{idle[0]}: it has no effect in a file that is included; write it in the first one, or have a file "
            "of its own include the agents"
        )
    merged = merge([said])
    interpolate(merged, environ, of="fleet.")
    settings = fitted(merged, FleetSettings, of="fleet.")
    if include.name is None and "name" not in settings.model_fields_set:
        raise ConfigurationError(
            "it is included, and has no name; write `fleet: {name: ...}` here, or `name:` where it is included",
            file=file.document.file,
        )
    return include.name or settings.name
