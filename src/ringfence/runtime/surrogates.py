"""Halves of surrogate pairs: JSON can spell them, but no journal can hold them."""

from typing import Any

import msgspec


def is_text(value: Any) -> bool:
    """Whether there are none in `value`, which is an event or made of what JSON has."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return False
    return True


def scrubbed(value: Any) -> Any:
    """`value`, which is made of what JSON has, with the character for what cannot be shown in place of each."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    return [scrubbed(item) for item in value] if isinstance(value, list) else value
