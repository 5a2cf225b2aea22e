"""What keys there are: a walk over the models, for names, nearest names, and templates."""

import difflib
import functools
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ringfence.config.model import Settings
from ringfence.config.units import ByteCount, Seconds, format_duration, format_size
from ringfence.frozen import frozen

FieldPath = tuple[str, ...]


@frozen
class Field:
    """One key of the configuration that holds a value (not a section)."""

    path: FieldPath
    info: FieldInfo
    kind: Any
    """Its type, without `Annotated` and `| None`."""
    nullable: bool
    is_duration: bool = False

    @property
    def key(self) -> str:
        """The dotted name, such as `sandbox.memory`."""
        return ".".join(self.path)

    @property
    def is_scalar(self) -> bool:
        """Whether one word says it, as against a list or a mapping."""
        return get_origin(self.kind) not in {tuple, dict}

    @property
    def is_mapping(self) -> bool:
        """Whether its keys are free."""
        return get_origin(self.kind) is dict

    @property
    def default(self) -> Any:
        """Its value when nobody says anything."""
        return self.info.get_default(call_default_factory=True)

    def of(self, settings: Settings) -> Any:
        """Its value in settings."""
        return functools.reduce(getattr, self.path, settings)

    def written(self, value: Any) -> str:
        """`value` as it would stand in the file, in YAML's (and nearly always JSON's) notation."""
        if value is None:
            return "null"
        if self.kind is ByteCount and isinstance(value, int):
            return format_size(value)
        if self.is_duration and isinstance(value, float):
            return format_duration(value)
        return json.dumps(_jsonable(value), ensure_ascii=False)


def sections() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Name, description and model of each section, in order."""
    for name, info in Settings.model_fields.items():
        kind, _ = _plain(info.annotation)
        if _is_model(kind):
            yield name, info.description or "", kind


@functools.cache
def all_fields() -> Mapping[str, Field]:
    """Every key that holds a value, by its dotted name, in order."""
    found: dict[str, Field] = {}
    for name, info in Settings.model_fields.items():
        kind, _ = _plain(info.annotation)
        if _is_model(kind):
            for below, below_info in kind.model_fields.items():
                field = field_of((name, below), below_info)
                found[field.key] = field
        else:
            found[name] = field_of((name,), info)
    return types.MappingProxyType(found)


def field_of(path: FieldPath, info: FieldInfo) -> Field:
    """A key, from what its model says of it."""
    kind, nullable = _plain(info.annotation)
    durations = (*info.metadata, *(part for member in get_args(info.annotation) for part in get_args(member)))
    return Field(path, info, kind, nullable, is_duration=get_args(Seconds)[1] in durations)


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, tuple) else value


def known_keys(
    path: Iterable[str | int], model: type[BaseModel] = Settings, *, of_type: object = None
) -> tuple[str, ...]:
    """The keys that may stand in the mapping at `path` of a model; empty if they are free or it is no mapping.

    Where several kinds of mapping may stand there, those of the one whose `type` it is, or else of all.
    """
    kinds: list[Any] = [model]
    for part in path:
        kinds = [below for kind in kinds for below in _below(kind, str(part))]
    models = [kind for kind in kinds if _is_model(kind)]
    models = [kind for kind in models if of_type in _types_of(kind)] or models
    return tuple(
        dict.fromkeys(info.alias or name for kind in models for name, info in kind.model_fields.items())
    )


def _types_of(model: type[BaseModel]) -> tuple[Any, ...]:
    """What `type:` may say in a mapping of this kind."""
    info = model.model_fields.get("type")
    return get_args(info.annotation) if info is not None else ()


def _below(kind: Any, part: str) -> list[Any]:
    """What may stand under one key or index of a value of this kind."""
    if not _is_model(kind):
        return _members(_element(kind))
    named = [info for name, info in kind.model_fields.items() if part in (name, info.alias)]
    return [member for info in named for member in _members(info.annotation)]


def _members(kind: Any) -> list[Any]:
    """The kinds that a kind may be: one, or several of a union."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return [member for argument in get_args(kind) for member in _members(argument)]
    return [kind]


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` probably meant."""
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def _element(kind: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return arguments[1]
    return arguments[0] if get_origin(kind) is tuple else None


def _plain(kind: Any) -> tuple[Any, bool]:
    """A type without `Annotated` and `| None`, and whether it had the latter."""
    nullable = False
    while get_origin(kind) in {Annotated, Union, types.UnionType}:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
            continue
        rest = [argument for argument in get_args(kind) if argument is not type(None)]
        nullable = nullable or len(rest) < len(get_args(kind))
        kind = rest[0]
    return kind, nullable


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
