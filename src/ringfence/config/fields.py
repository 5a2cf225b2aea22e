"""The keys of the configuration, found by a walk over the models: for error messages and templates."""

import functools
import json
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ringfence.config.model import Settings
from ringfence.config.units import ByteCount, Seconds, format_duration, format_size
from ringfence.frozen import frozen

FieldPath = tuple[str, ...]

_UNITS: tuple[tuple[Literal["size", "duration"], Any], ...] = (
    ("size", get_args(ByteCount)[1]),
    ("duration", get_args(Seconds)[1]),
)
"""The validators by which the types of sizes and durations are recognized."""


@frozen
class Field:
    """A key of the configuration that holds a value, and not a section."""

    path: FieldPath
    info: FieldInfo
    kind: Any
    """The type of the value, without `Annotated` and `| None`."""
    nullable: bool
    unit: Literal["size", "duration"] | None = None

    @property
    def key(self) -> str:
        """The dotted name, such as `sandbox.memory`."""
        return ".".join(self.path)

    @property
    def is_scalar(self) -> bool:
        """Whether the value is a scalar, and not a list or a mapping."""
        return get_origin(self.kind) not in {tuple, dict} and not self.is_section

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping with arbitrary keys."""
        return get_origin(self.kind) is dict

    @property
    def is_section(self) -> bool:
        """Whether the value is a mapping with keys of its own."""
        return _is_model(self.kind)

    @property
    def default(self) -> Any:
        """The value of the key if no layer sets it."""
        return self.info.get_default(call_default_factory=True)

    def of(self, settings: Settings) -> Any:
        """Return the value of the key in settings."""
        return functools.reduce(getattr, self.path, settings)

    def written(self, value: Any) -> str:
        """Return `value` as written in a file, in the notation of YAML, which is nearly always that of JSON."""
        if value is None:
            return "null"
        if self.unit is not None:
            return format_size(value) if self.unit == "size" else format_duration(value)
        return json.dumps(_jsonable(value), ensure_ascii=False)


def sections() -> Iterator[tuple[str, str, type[BaseModel]]]:
    """Yield the name, the description and the model of each section, in order."""
    for name, info in Settings.model_fields.items():
        kind, _ = _plain(info.annotation)
        if _is_model(kind):
            yield name, info.description or "", kind


@functools.cache
def all_fields() -> Mapping[str, Field]:
    """Return every key that holds a value by its dotted name, in order."""
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
    """Return the key that a field of a model describes."""
    kind, nullable = _plain(info.annotation)
    marks = (*info.metadata, *(part for member in get_args(info.annotation) for part in get_args(member)))
    return Field(path, info, kind, nullable, next((unit for unit, mark in _UNITS if mark in marks), None))


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    return [_jsonable(item) for item in value] if isinstance(value, tuple) else value


def known_keys(
    path: Iterable[str | int], model: type[BaseModel] = Settings, *, of_type: object = None
) -> tuple[str, ...]:
    """Return the keys of the mapping at `path` of a model; none if its keys are arbitrary or it is not a mapping.

    If the model allows several kinds of mapping, `of_type` selects the kind with this `type`; otherwise the keys of all
    kinds are returned.
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
    """Return the values of `type:` in a mapping of this kind."""
    info = model.model_fields.get("type")
    return get_args(info.annotation) if info is not None else ()


def _below(kind: Any, part: str) -> list[Any]:
    """Return the kinds of value under a key or index of a value of this kind."""
    if not _is_model(kind):
        return _members(_element(kind))
    named = [info for name, info in kind.model_fields.items() if part in (name, info.alias)]
    return [member for info in named for member in _members(info.annotation)]


def _members(kind: Any) -> list[Any]:
    """Return the members of a union, or the kind itself if it is not a union."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return [member for argument in get_args(kind) for member in _members(argument)]
    return [kind]


def _element(kind: Any) -> Any:
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return arguments[1]
    return arguments[0] if get_origin(kind) is tuple else None


def _plain(kind: Any) -> tuple[Any, bool]:
    """Return a type without `Annotated` and `| None`, and whether it included None."""
    members = _members(kind)
    plain = [member for member in members if member is not types.NoneType]
    return plain[0], len(plain) < len(members)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
