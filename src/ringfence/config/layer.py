"""Layers of raw configuration, made from files, parts of files, variables and flags, and their merging."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ringfence.config.document import DEFAULT, Document, KeyPath, Origin
from ringfence.config.model import Settings
from ringfence.config.old_names import OLD_KEY
from ringfence.frozen import frozen

ADDING_UP: frozenset[KeyPath] = frozenset({("sandbox", "protect"), ("egress", "deny")})
"""Lists that are concatenated across layers; all other lists are replaced."""

SECTIONS = tuple(Settings.model_fields)
"""The keys at the top of a file that apply to all its agents."""

FLEET_KEYS = ("fleet", "agents", "include", "loop")
"""Keys of a file that configure a fleet or a loop, beside the sections of a run."""


@frozen
class Layer:
    """The raw values of one source."""

    values: Mapping[str, Any]
    origin_of: Callable[[KeyPath, bool], Origin]
    """A function that returns the origin of the value at a path or, if its second argument is True, of the key."""


def document_layer(document: Document, kind: Literal["project", "user"]) -> Layer:
    """Return a file as a layer of a run, without its fleet keys.

    An empty section, whose lines are commented out, counts as absent.
    """
    values = {
        key: value
        for key, value in document.values.items()
        if key not in (*FLEET_KEYS, OLD_KEY) and (value is not None or key not in SECTIONS)
    }
    return Layer(values, lambda path, of_key: document.origin(path, kind, of_key=of_key))


def named_layer(kind: Literal["flag", "environment"], values: Mapping[KeyPath, tuple[str, Any]]) -> Layer:
    """Return flags or variables as a layer: `values` maps each path to the name and the value."""
    tree: dict[str, Any] = {}
    for path in sorted(values, key=lambda path: (len(path), path)):
        branch = tree
        for key in path[:-1]:
            below = branch.get(str(key))
            branch[str(key)] = branch = dict(below) if isinstance(below, Mapping) else {}
        value = values[path][1]
        branch[str(path[-1])] = list(value) if isinstance(value, tuple) else value

    def origin_of(path: KeyPath, _of_key: bool) -> Origin:
        for length in range(len(path), 0, -1):
            if path[:length] in values:
                return Origin(kind, name=values[path[:length]][0], path=path[:length])
        names = {name for known, (name, _) in values.items() if known[: len(path)] == path}
        return Origin(kind, name=", ".join(sorted(names)), path=path)

    return Layer(tree, origin_of)


@dataclass
class Merged:
    """The merged values of layers, and the layer of each leaf."""

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[KeyPath, tuple[Layer, KeyPath]] = field(default_factory=dict)
    """The layer of each leaf, and the leaf's path in that layer, which differs in concatenated lists."""
    variables: set[KeyPath] = field(default_factory=set)
    """The paths of the values in which a variable was replaced."""

    def origin(self, path: Sequence[str | int], *, of_key: bool = False) -> Origin:
        """Return the origin of the value at `path`; for a mapping of several layers, that of the last layer."""
        path = tuple(path)
        for length in range(len(path), 0, -1):
            if path[:length] in self.sources:
                layer, start = self.sources[path[:length]]
                return layer.origin_of((*start, *path[length:]), of_key)
        below = [layer for known, (layer, _) in self.sources.items() if known[: len(path)] == path]
        return below[-1].origin_of(path, of_key) if below and path else DEFAULT

    def blame(self, path: Sequence[str | int], *, of_key: bool = False) -> Origin:
        """Return the origin of the value at `path` or, if no layer sets it, of the nearest mapping around it."""
        for length in range(len(path), 0, -1):
            origin = self.origin(path[:length], of_key=of_key)
            if origin != DEFAULT:
                return origin
        return DEFAULT


def merge(layers: Iterable[Layer]) -> Merged:
    """Merge layers, the weakest first. Mappings are merged; other values are replaced."""
    merged = Merged()
    for layer in layers:
        _merge_into(merged, merged.values, layer, layer.values, ())
    return merged


def _merge_into(
    merged: Merged, below: dict[str, Any], layer: Layer, above: Mapping[str, Any], path: KeyPath
) -> None:
    for key, value in above.items():
        here = (*path, key)
        if isinstance(value, Mapping) and value:
            if not isinstance(below.get(key), dict):
                if key in below:
                    _forget(merged, here)
                below[key] = {}
            merged.sources.pop(here, None)
            _merge_into(merged, below[key], layer, value, here)
        elif isinstance(value, Mapping):
            if not isinstance(below.get(key), dict):
                _put(merged, below, layer, {}, here)
        else:
            _put(merged, below, layer, value, here)


def _put(merged: Merged, below: dict[str, Any], layer: Layer, value: Any, path: KeyPath) -> None:
    key = str(path[-1])
    earlier = below.get(key)
    if path in ADDING_UP and isinstance(value, list) and isinstance(earlier, list):
        if path in merged.sources:
            source, start = merged.sources.pop(path)
            merged.sources |= {(*path, index): (source, (*start, index)) for index in range(len(earlier))}
        for index in range(len(value)):
            merged.sources[(*path, len(earlier) + index)] = (layer, (*path, index))
        below[key] = [*earlier, *value]
        return
    if key in below:  # a new key has no sources, and searching for them is slow in a large file
        _forget(merged, path)
    below[key] = value
    merged.sources[path] = (layer, path)


def _forget(merged: Merged, path: KeyPath) -> None:
    for known in [known for known in merged.sources if known[: len(path)] == path]:
        del merged.sources[known]


def sections_of(document: Document) -> Layer:
    """Return the layer of a file that applies to all of its agents."""
    return only(document_layer(document, "project"), SECTIONS)


def only(layer: Layer, keys: tuple[str, ...]) -> Layer:
    """Return a layer with only these keys."""
    return replace(layer, values={key: value for key, value in layer.values.items() if key in keys})


def part_of(document: Document, path: KeyPath) -> Layer:
    """Return the mapping at a path of a document as a layer.

    Raises:
        ConfigurationError: The value is not a mapping.
    """
    value = value_at(document, path)
    if value is not None and not isinstance(value, Mapping):
        raise document.error(path, f"{'.'.join(map(str, path))}: write a mapping")

    values = {key: below for key, below in (value or {}).items() if below is not None or key not in SECTIONS}
    return Layer(values, lambda below, of_key: document.origin((*path, *below), "project", of_key=of_key))


def value_at(document: Document, path: KeyPath) -> Any:
    """Return the value at a path; None if there is none."""
    value: Any = document.values
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return None
    return value
