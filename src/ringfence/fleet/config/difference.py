"""Lists the differences between two configurations of a fleet, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ringfence.config.document import Origin
from ringfence.fleet.config.definition import Fleet

_MAX_SHOWN = 80
_AT_START = ("fleet.workers", "fleet.engine", "fleet.api", "fleet.webhooks", "fleet.metrics")
"""Keys that the daemon reads only at its start."""


@dataclass(frozen=True)
class ExplicitValue:
    """A value that is not a default."""

    key: str
    value: Any
    origin: Origin


def differences(before: Fleet, after: Fleet) -> list[str]:
    """Return lines such as `agents.mender.limits.turns: was 60, is 30`, in the order of keys."""
    old, new = ({each.key: each.value for each in explicit_values(fleet)} for fleet in (before, after))
    lines = []
    for key in sorted({*old, *new}):
        if key in old and key in new and old[key] == new[key]:
            continue
        parts = [f"was {_shown(old[key])}"] if key in old else []
        parts += [f"is {_shown(new[key])}"] if key in new else []
        delay = " (from the next start on)" if key.startswith(_AT_START) else ""
        lines.append(f"{key}: {', '.join(parts)}{delay}")
    return lines


def explicit_values(fleet: Fleet) -> Iterator[ExplicitValue]:
    """Yield every value that is not a default, with its origin."""
    for key, value in _leaves("fleet", _plain(fleet.settings)):
        yield ExplicitValue(key, value, fleet.merged.origin(key.split(".")[1:]))
    for name, agent in fleet.agents.items():
        prefix = f"agents.{name}"
        for key, value in _leaves(prefix, _plain(agent.settings)):
            yield ExplicitValue(key, value, agent.origin(key.removeprefix(f"{prefix}.")))


def _plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json", exclude_unset=True, by_alias=True)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}", below)
    else:
        yield key, value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
