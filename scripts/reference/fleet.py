"""docs/reference/fleet.md."""

from collections.abc import Iterator
from typing import Any, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reference.configuration import kind_of
from reference.markdown import code, first_paragraph, table
from ringfence.config.fields import field_of
from ringfence.config.model import Settings
from ringfence.config.template import describe
from ringfence.fleet.config.model import (
    AgentSettings,
    CommandHook,
    FleetSettings,
    IncludeSettings,
    ScheduleSettings,
    Trigger,
    WebhookHook,
)

_HEAD = """\
# Fleet

What `ringfence.yaml` can say of a fleet, beside the [configuration of runs](configuration.md): `fleet:`,
`agents:` and `include:`. `ringfence fleet validate` checks it, `ringfence fleet show --origin` prints the effective
values and the lines that set them, `ringfence config schema` prints the JSON Schema for editors. A key that is unknown,
or has no effect, is an error with file, line and column.

Durations are seconds or text such as `90s`, `10m`, `1h`, `7d`; sizes are bytes or text such as `512m`, `2g`. Names are
up to 40 small letters, digits, `-` and `_`. Paths are relative to the file that sets them. `${NAME}` and
`${NAME:-default}` are variables of the daemon's environment, `$$` is a dollar sign, and `${secret:NAME}` is a secret
that `secrets:` names; it is read when it is used.

A section of a run's configuration (`sandbox`, `run`, `limits`, `egress`, `tools`, ...) at the top of a file applies to
all its agents; the same section of an agent overrides it, key by key. A fleet works unattended, so each of its files
must be trusted with `ringfence config trust`.
"""
_COLUMNS = ("key", "type", "default", "meaning")
_INCLUDE = """\
A list of other fleets' files. Their agents are named `FLEET.AGENT`. Of what such a file says under `fleet:` only `name`
and `description` hold; the rest is refused there, since the first file decides on the fleet as a whole.
"""

_HOOKS = """\
Mapping of a moment to a list of hooks: `before_run`, `after_run` (after every end), `on_success` (`succeeded`,
`unverified`), `on_limit` (`limit`), `on_cancel` (`cancelled`), `on_failure` (any other end). How: [hooks and
notifications](../how-to/hooks-and-notifications.md).
"""
_CODES = """\
## Exit codes

`ringfence fleet trigger --wait` ends with the code of the job's end, as `ringfence run` would; all codes: [exit
codes](exit-codes.md). Any command that needs the daemon ends with 2 if there is none, and says how one is started;
with 75 if it goes away while a job is waited for.
`ringfence fleet up` ends with 78 if the files are wrong, 4 if they are not trusted, 2 if another daemon has the state
directory, 75 if the database is away.

The daemon's interface for programs and for other machines: [HTTP API](api.md).
"""


def page() -> str:
    """The page."""
    for model in (FleetSettings, AgentSettings, IncludeSettings):
        describe(model)
    return "\n".join(
        [
            _HEAD,
            "## fleet\n",
            settings_table(FleetSettings, ("fleet",)),
            "## agents\n",
            "A mapping of names to agents. Each has the sections of a [run's configuration](configuration.md), and:\n",
            settings_table(AgentSettings, ("agents", "NAME"), without=tuple(Settings.model_fields)),
            "## schedules\n",
            "Under `agents.NAME.schedules`, by name:\n",
            settings_table(ScheduleSettings, ()),
            "## triggers\n",
            "Under `agents.NAME.triggers`, by name; `type` says which:\n",
            *_kinds(get_args(get_args(Trigger)[0]), "###"),
            "## hooks\n",
            _HOOKS,
            *_kinds((CommandHook, WebhookHook), "###"),
            "## include\n",
            _INCLUDE,
            settings_table(IncludeSettings, ("include",)),
            _CODES,
        ]
    )


def _kinds(models: tuple[type[BaseModel], ...], level: str) -> Iterator[str]:
    for model in models:
        names = ", ".join(f"`{name}`" for name in get_args(model.model_fields["type"].annotation))
        yield f"{level} type: {names.replace('`', '')}\n"
        yield f"{first_paragraph(model.__doc__)}\n"
        yield settings_table(model, (), without=("type",))


def settings_table(model: type[BaseModel], path: tuple[str, ...], *, without: tuple[str, ...] = ()) -> str:
    """The keys of a section, and of those in it.

    Args:
        model: The section.
        path: Where it stands.
        without: Keys that are left out.
    """
    return table(_COLUMNS, _rows(model, path, without))


def _rows(
    model: type[BaseModel], path: tuple[str, ...], without: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        if name in without:
            continue
        here = (*path, info.alias or name)
        field = field_of(here, info)
        if isinstance(field.kind, type) and issubclass(field.kind, BaseModel):
            if field.nullable:
                yield (code(field.key), "section or null", "`null`", info.description or "")
            yield from _rows(field.kind, here)
            continue
        default = (
            "" if info.is_required() else code(field.written(info.get_default(call_default_factory=True)))
        )
        yield (
            code(field.key),
            _type(field.kind, info, unit=field.unit, nullable=field.nullable),
            default,
            info.description or "",
        )


def _type(kind: Any, info: FieldInfo, *, unit: str | None, nullable: bool) -> str:
    return kind_of(kind, unit=unit) + _range(info) + (" or null" if nullable else "")


def _range(info: FieldInfo) -> str:
    least = next((each.ge for each in info.metadata if isinstance(each, Ge)), None)
    above = next((each.gt for each in info.metadata if isinstance(each, Gt)), None)
    most = next((each.le for each in info.metadata if isinstance(each, Le)), None)
    if least is not None:
        return f" from {least}" + ("" if most is None else f" to {most}")
    return "" if above is None else f" above {above}"
