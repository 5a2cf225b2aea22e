"""Decodes JSON strictly: a key that occurs twice in an object, and the constants `NaN` and `Infinity`, are errors."""

import json
from typing import Any, NoReturn


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name[:80]!r} occurs twice in one object")
        found[name] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


STRICT_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
"""Programs differ in which of two equal keys counts. It raises ValueError, and RecursionError for deep nesting."""
