"""Lists the differences between two configurations of a fleet, key by key, and what a reload would change."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ringfence.config.document import KeyPath, Origin, read_regular_file
from ringfence.config.effective import trust_command
from ringfence.config.trust import is_trusted
from ringfence.errors import ConfigurationError, RingfenceError
from ringfence.fleet.config.definition import Fleet
from ringfence.fleet.config.loader import load_fleet
from ringfence.fleet.config.shown_value import is_from_variable, shown_value

_MAX_SHOWN = 80
_AT_START = (
    "fleet.name",
    "fleet.workers",
    "fleet.engine",
    "fleet.records",
    "fleet.api",
    "fleet.webhooks",
    "fleet.metrics",
    "fleet.traces",
    "fleet.log_format",
)
"""Keys that the daemon and its workers read only at their start."""


@dataclass(frozen=True)
class ExplicitValue:
    """A value that is not a default."""

    key: str
    value: Any
    origin: Origin
    path: KeyPath
    """The path in the settings of the fleet or of its agent."""
    variables: AbstractSet[KeyPath]
    """The paths in these settings of all values that contained a variable."""

    @property
    def is_from_variable(self) -> bool:
        """Whether the value contained a variable."""
        return is_from_variable(self.path, self.variables)

    @property
    def shown(self) -> Any:
        """The value without secrets."""
        return shown_value(self.path, self.value, self.variables)


class _VariableNames(Mapping[str, str]):
    """Has every variable, and the reference to it as its value."""

    def __getitem__(self, name: str) -> str:
        return f"${{{name}}}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def pending_changes(running: Fleet, file: Path, *, environ: Mapping[str, str]) -> list[str]:
    """Return what a reload would change, one line per change. Files that are not trusted are named first.

    The variables of a file that is not trusted are not replaced, and values that contain one are compared only with
    values that contain none. No error contains the value of a variable. This function blocks.

    Args:
        running: The configuration in effect.
        file: The fleet's file.
        environ: The variables that trusted files may refer to.

    Raises:
        ConfigurationError: The files are invalid.
    """
    plain, problem = _load_unexpanded(file)
    untrusted = plain.untrusted() if plain is not None else _untrusted_now(running)
    if untrusted:
        changes = [] if plain is None else differences(running, plain, with_variables=False)
        return [*(_untrusted_line(each, running) for each in untrusted), *changes]
    try:
        fleet = load_fleet(file, environ=environ)
    except RingfenceError:
        if problem is not None:
            raise problem from None
        raise ConfigurationError(
            "a variable has no value that fits; `ringfence fleet validate` names it", file=file
        ) from None
    return [_untrusted_line(each, running) for each in fleet.untrusted()] or differences(running, fleet)


def _load_unexpanded(file: Path) -> tuple[Fleet | None, RingfenceError | None]:
    try:
        return load_fleet(file, environ=_VariableNames()), None
    except RingfenceError as exc:
        return None, exc


def _untrusted_now(running: Fleet) -> list[Path]:
    """Return the files of the running configuration whose present content is not trusted."""
    return [
        each.file for each in running.documents if not is_trusted(each.file, read_regular_file(each.file))
    ]


def _untrusted_line(file: Path, running: Fleet) -> str:
    return (
        f"{file}: its present content is not trusted, so its variables are not replaced; read it, then run "
        f"`{trust_command(running.file)}`"
    )


def differences(before: Fleet, after: Fleet, *, with_variables: bool = True) -> list[str]:
    """Return lines such as `agents.mender.limits.turns: was 60, is 30`, in the order of keys and without secrets.

    Args:
        before: The earlier configuration.
        after: The later configuration.
        with_variables: Compare values that contained a variable both before and after.
    """
    old, new = ({each.key: each for each in explicit_values(fleet)} for fleet in (before, after))
    lines = []
    for key in sorted({*old, *new}):
        if key in old and key in new:
            both = old[key].is_from_variable and new[key].is_from_variable
            if old[key].value == new[key].value or (both and not with_variables):
                continue
        parts = [f"was {_shown(old[key])}"] if key in old else []
        parts += [f"is {_shown(new[key])}"] if key in new else []
        is_higher = after.settings.concurrency > before.settings.concurrency
        waits = key.startswith(_AT_START) or (key == "fleet.concurrency" and is_higher)
        delay = " (from the next start on)" if waits else ""
        lines.append(f"{key}: {', '.join(parts)}{delay}")
    return lines


def explicit_values(fleet: Fleet) -> Iterator[ExplicitValue]:
    """Yield every value that is not a default, with its origin."""
    merged = fleet.merged
    for path, value in _leaves((), _plain(fleet.settings)):
        key, origin = _key("fleet", path), merged.origin(path)
        yield ExplicitValue(key, value, origin, path, merged.variables)
    for name, agent in fleet.agents.items():
        for path, value in _leaves((), _plain(agent.settings)):
            key, origin = _key(f"agents.{name}", path), agent.merged.origin(path)
            yield ExplicitValue(key, value, origin, path, agent.merged.variables)


def _plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json", exclude_unset=True, by_alias=True)


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves((*path, name), below)
    else:
        yield path, value


def _key(prefix: str, path: KeyPath) -> str:
    return ".".join([prefix, *map(str, path)])


def _shown(each: ExplicitValue) -> str:
    text = repr(each.shown)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
