"""docs/reference/configuration.md."""

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from reference.markdown import code, table
from ringfence.config.egress import EgressRule
from ringfence.config.environment import variable_name
from ringfence.config.fields import Field, all_fields, field_of, sections
from ringfence.config.model import McpServer, MountSettings, PriceSettings
from ringfence.config.restriction import TABLE
from ringfence.config.secret_reference import SecretReference
from ringfence.config.template import describe

_HEAD = """\
# Configuration

A value is taken from the first of these places that sets it:

1. an option on the command line;
2. a `RINGFENCE_*` variable ([environment](environment.md));
3. `ringfence.yaml`, the nearest one from the workspace upwards;
4. your own file, `~/.config/ringfence/ringfence.yaml` (`$XDG_CONFIG_HOME`);
5. the default.

`ringfence config show --origin` prints the effective configuration and where each value was set, `ringfence init`
writes a file that explains every key, and `ringfence config schema` prints the JSON Schema for editors. An unknown key
is an error with file, line and column.

**A project's file can only tighten** the policy until you run `ringfence config trust` on its present content, since the
author of the repository is the author of the file. The column *without trust* says what counts as tighter.

Sizes are bytes or text such as `512m`, `2g`; durations are seconds or text such as `90s`, `10m`, `1h`.
"""
_NESTED = {
    "sandbox.mounts": MountSettings,
    "egress.allow": EgressRule,
    "tools.mcp": McpServer,
    "prices": PriceSettings,
    "secrets": SecretReference,
}
_COLUMNS = ("key", "type", "default", "meaning", "without trust")


def page() -> str:
    """The page."""
    parts = [_HEAD]
    describe()
    fields = list(all_fields().values())
    named = set()
    for name, description, _ in sections():
        named.add(name)
        parts += [f"## {name}\n", f"{description}\n"]
        parts.append(table(_COLUMNS, [_row(field) for field in fields if field.path[0] == name]))
        parts += [_nested(field) for field in fields if field.path[0] == name and field.key in _NESTED]
    parts.append("## Keys outside of sections\n")
    parts.append(table(_COLUMNS, [_row(field) for field in fields if field.path[0] not in named]))
    parts += [_nested(field) for field in fields if field.path[0] not in named and field.key in _NESTED]
    parts.append(
        "The variable of a key is its name in capitals with `__` for the dot: "
        f"`{variable_name('sandbox.memory')}=1g`. "
        "Lists and mappings are written as JSON there.\n"
    )
    return "\n".join(parts)


def _row(field: Field) -> tuple[str, ...]:
    kind = kind_of(field.kind, unit=field.unit) + (" or null" if field.nullable else "")
    return (
        code(field.key),
        kind,
        code(field.written(field.default)),
        field.info.description or "",
        TABLE[field.key].allowed,
    )


def _nested(field: Field) -> str:
    model: type[BaseModel] = _NESTED[field.key]
    rows = [
        (
            code(name),
            kind_of(info.annotation, unit=field_of((name,), info).unit),
            "" if info.is_required() else code(str(info.default).lower()),
            info.description or "",
        )
        for name, info in model.model_fields.items()
    ]
    return f"Each entry of `{field.key}`:\n\n" + table(("key", "type", "default", "meaning"), rows)


_NAMES = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    NoneType: "null",
}


def kind_of(kind: Any, *, unit: str | None = None) -> str:
    """A type in words."""
    if unit is not None:
        return unit
    if get_origin(kind) is Literal:
        return ", ".join(code(value) for value in get_args(kind))
    if get_origin(kind) is tuple:
        return f"list of {_several(get_args(kind)[0])}"
    if get_origin(kind) is dict:
        return f"mapping of text to {_several(get_args(kind)[1])}"
    if get_origin(kind) is not None:
        return kind_of(get_args(kind)[0])
    return _NAMES.get(kind, "entry" if isinstance(kind, type) and issubclass(kind, BaseModel) else "text")


def _several(kind: Any) -> str:
    name = kind_of(kind)
    return "entries" if name == "entry" else name
