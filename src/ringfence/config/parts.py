"""Parts of a file as layers: what stands under one key, and knows its places."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringfence.config.document import Document, KeyPath
from ringfence.config.layer import Layer, document_layer
from ringfence.config.model import Settings
from ringfence.config.origin import Origin
from ringfence.errors import ConfigurationError

SECTIONS = tuple(Settings.model_fields)
"""What stands at the top of a file and holds for all its agents."""


def sections_of(document: Document) -> Layer:
    """What a file says to all of its agents."""
    return only(document_layer(document, "project"), SECTIONS)


def only(layer: Layer, keys: tuple[str, ...]) -> Layer:
    """A layer without other keys than these."""
    return replace(layer, values={key: value for key, value in layer.values.items() if key in keys})


def part_of(document: Document, path: KeyPath) -> Layer:
    """What stands at a path of a document, as a layer of its own.

    Raises:
        ConfigurationError: It is no mapping.
    """
    value = value_at(document, path)
    if value is not None and not isinstance(value, Mapping):
        raise error_at(document, path, f"{'.'.join(map(str, path))}: write a mapping")

    def origin_of(below: KeyPath, of_key: bool) -> Origin:
        place = document.place((*path, *below), of_key=of_key)
        return Origin("project", file=document.file, line=place.line, column=place.column)

    return Layer(
        {key: below for key, below in (value or {}).items() if below is not None or key not in SECTIONS},
        origin_of,
    )


def value_at(document: Document, path: KeyPath) -> Any:
    """What stands at a path; None if nothing does."""
    value: Any = document.values
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(str(part))
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            return None
    return value


def error_at(document: Document, path: KeyPath, message: str, *, of_key: bool = False) -> ConfigurationError:
    """The error that blames a place."""
    place = document.place(path, of_key=of_key)
    return ConfigurationError(message, file=document.file, line=place.line, column=place.column)
