"""What is different between two configurations of a fleet, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from ringfence.config.document import Origin
from ringfence.fleet.config.definition import Fleet

_SHOWN = 80
_LATER = ("fleet.workers", "fleet.engine", "fleet.webhooks", "fleet.metrics")
"""What a daemon takes up at its start only."""


def differences(before: Fleet, after: Fleet) -> list[str]:
    """Lines such as `agents.mender.limits.turns: was 60, is 30`, in the order of keys."""
    old, new = ({each.key: each.value for each in said(fleet)} for fleet in (before, after))
    lines = []
    for key in sorted({*old, *new}):
        if old.get(key, _ABSENT) == new.get(key, _ABSENT):
            continue
        words = [f"was {_shown(old[key])}"] if key in old else []
        words += [f"is {_shown(new[key])}"] if key in new else []
        is_later = key.startswith(_LATER)
        lines.append(f"{key}: {', '.join(words)}{' (from the next start on)' if is_later else ''}")
    return lines


_ABSENT = object()


@dataclass(frozen=True)
class Said:
    """A value that somebody gave."""

    key: str
    value: Any
    origin: Origin


def said(fleet: Fleet) -> Iterator[Said]:
    """Everything that is not a default, and where it comes from."""
    for key, value in _leaves("fleet", _plain(fleet.settings)):
        yield Said(key, value, fleet.merged.origin(key.split(".")[1:]))
    for name, agent in fleet.agents.items():
        prefix = f"agents.{name}"
        for key, value in _leaves(prefix, _plain(agent.settings)):
            yield Said(key, value, agent.origin(key.removeprefix(f"{prefix}.")))


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
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
