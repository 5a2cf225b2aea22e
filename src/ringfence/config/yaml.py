"""Reads a YAML file into plain values with their positions.

A file may be from a hostile repository, so the reader accepts only the part of YAML that configurations need: one
document of mappings, lists and plain scalars. Anchors, aliases, tags and merge keys are refused, because a few lines of
them can expand to gigabytes. Links, pipes, large files and deep nesting are refused, too.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError

from ringfence.config.document import Document, KeyPath, Place, decode_text, read_regular_file
from ringfence.errors import ConfigurationError

_DEPTH_LIMIT = 16
_NODE_LIMIT = 10_000


def read_document(file: Path, *, follow_link: bool = False) -> Document:
    """Read and parse `file`.

    Raises:
        ConfigurationError: The file cannot be read, is not a regular file, is too large, is not UTF-8, or is not the
            YAML described above. Links are refused, unless `follow_link`.
    """
    return parse_document(read_regular_file(file, follow_link=follow_link), file)


def parse_document(content: bytes, file: Path) -> Document:
    """Parse the content of `file`. An empty document gives an empty mapping.

    Raises:
        ConfigurationError: The content is invalid, or not a mapping; the error has the position.
    """
    value, document = parse_value(content, file)
    if value is None:
        return document
    if not isinstance(value, dict):
        start = document.place(())
        reason = "a configuration is a mapping of sections, like 'sandbox:'"
        raise ConfigurationError(reason, file=file, line=start.line, column=start.column)
    return replace(document, values=value)


def parse_value(content: bytes, file: Path, *, most_values: int = _NODE_LIMIT) -> tuple[Any, Document]:
    """Parse a file whose root may be any value; return it, and a document with only positions.

    Raises:
        ConfigurationError: The content is invalid; the error has the position.
    """
    builder = _build(content, file, most_values)
    builder.places.setdefault((), Place(1, 1))
    return builder.root, Document(file, content, {}, builder.places, builder.key_places)


def _build(content: bytes, file: Path, most_values: int) -> "_Builder":
    text = decode_text(content, file)
    builder = _Builder(file, most_values)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        problem = " ".join(str(part).strip() for part in (exc.context, exc.problem) if part)
        advice = "; indent by spaces, not by tabs" if r"'\t'" in problem else ""
        _refuse(f"this is not YAML: {problem}{advice}", file, mark)
    except ReaderError as exc:
        before = text[: exc.position]
        raise ConfigurationError(
            f"character {text[exc.position : exc.position + 1]!r} is not allowed in YAML; remove it",
            file=file,
            line=before.count("\n") + 1,
            column=len(before) - before.rfind("\n"),
        ) from exc
    except YAMLError as exc:
        raise ConfigurationError(f"this is not YAML: {str(exc).splitlines()[0]}", file=file) from exc
    return builder


def _refuse(message: str, file: Path, mark: Any) -> NoReturn:
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (None, None)
    raise ConfigurationError(message, file=file, line=line, column=column)


@dataclass
class _Open:
    """A mapping or list whose end has not been read yet."""

    path: KeyPath
    value: dict[str, Any] | list[Any]
    key: str | None = None


class _Builder:
    """Builds values from parser events one at a time, so that a YAML bomb is refused before it expands."""

    def __init__(self, file: Path, most_values: int) -> None:
        self.places: dict[KeyPath, Place] = {}
        self.key_places: dict[KeyPath, Place] = {}
        self._file = file
        self._most_values = most_values
        self.root: Any = None
        self._documents = 0
        self._open: list[_Open] = []
        self._resolver = YAML(typ="safe", pure=True)

    def take(self, event: Event) -> None:
        if isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                _refuse("a second document starts here; keep only one", self._file, event.start_mark)
        elif isinstance(event, NodeEvent):
            self._check(event)
            self._add(event)
        elif type(event).__name__ in {"MappingEndEvent", "SequenceEndEvent"}:
            self._open.pop()

    def _check(self, event: NodeEvent) -> None:
        if isinstance(event, AliasEvent) or event.anchor is not None:
            _refuse(
                "anchors and aliases are not read; write the value out",
                self._file,
                event.start_mark,
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            _refuse(f"tags like {str(tag)!r} are not read; remove it", self._file, event.start_mark)
        if len(self._open) >= _DEPTH_LIMIT:
            _refuse(f"nested deeper than {_DEPTH_LIMIT} levels", self._file, event.start_mark)
        if isinstance(event, ScalarEvent) and any("\ud800" <= letter <= "\udfff" for letter in event.value):
            _refuse(f"{event.value[:40]!r} contains an unpaired surrogate", self._file, event.start_mark)
        if len(self.places) >= self._most_values:
            _refuse(f"more than {self._most_values} values", self._file, event.start_mark)

    def _add(self, event: NodeEvent) -> None:
        parent = self._open[-1] if self._open else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            parent.key = self._key(event, parent)
            return
        path, value = self._path(parent), self._value(event)
        self.places[path] = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        if parent is None:
            self.root = value
        elif isinstance(parent.value, dict):
            parent.value[str(parent.key)] = value
            parent.key = None
        else:
            parent.value.append(value)
        if isinstance(event, CollectionStartEvent):
            self._open.append(_Open(path, value))

    def _path(self, parent: _Open | None) -> KeyPath:
        if parent is None:
            return ()
        return (*parent.path, len(parent.value) if isinstance(parent.value, list) else str(parent.key))

    def _key(self, event: NodeEvent, parent: _Open) -> str:
        if not isinstance(event, ScalarEvent):
            _refuse("a key must be a word, not a list or mapping", self._file, event.start_mark)
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            _refuse("merge keys (<<) are not read; write the keys out", self._file, event.start_mark)
        path = (*parent.path, key)
        if path in self.key_places:
            first = self.key_places[path]
            _refuse(
                f"key {key!r} occurs twice, first in line {first.line}; remove one",
                self._file,
                event.start_mark,
            )
        self.key_places[path] = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        return key

    def _value(self, event: NodeEvent) -> Any:
        if isinstance(event, MappingStartEvent):
            return {}
        if isinstance(event, SequenceStartEvent):
            return []
        assert isinstance(event, ScalarEvent)
        return self._scalar(event)

    def _scalar(self, event: ScalarEvent) -> Any:
        text = str(event.value)
        tag = self._resolver.resolver.resolve(ScalarNode, text, event.implicit)
        kind = str(tag).removeprefix("tag:yaml.org,2002:")
        node = ScalarNode(str(tag), text)
        constructor = self._resolver.constructor
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return constructor.construct_yaml_bool(node)
                case "int":
                    return constructor.construct_yaml_int(node)
                case "float":
                    return constructor.construct_yaml_float(node)
                case _:
                    return text
        except (ValueError, OverflowError, IndexError):
            return _refuse(f"{text[:40]!r} cannot be read as a number", self._file, event.start_mark)
