"""What must be known before a fleet that was brought over can be checked as a whole."""

from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.fleet.herdctl.document import Brought
from ringfence.fleet.herdctl.reader import variables_of


def unset_variables(brought: Brought, environ: Mapping[str, str]) -> list[str]:
    """Variables that are named without a default and are not set, in alphabetical order."""
    names = {
        name
        for _, level in brought.top.walk()
        for made in (level.settings, *level.agents.values())
        for text in _texts(made.values)
        for name in variables_of(text)
    }
    return sorted(name for name in names if name not in environ)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for below in value.values():
            yield from _texts(below)
    elif isinstance(value, list):
        for below in value:
            yield from _texts(below)
