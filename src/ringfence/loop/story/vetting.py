"""Values that JSON can hold, and no more of them than is sane."""

import math
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.loop.story.bounds import DEPTH_LIMIT
from ringfence.loop.story.complaint import Complaints
from ringfence.loop.story.words import SURROGATE

_NUMBER_BITS = 1024


def vet(value: Any, complaints: Complaints, *, most_values: int, most_chars: int) -> None:
    """See that a value is one that every writer of JSON and YAML can write, and is bounded.

    Args:
        value: Anything; it is not walked further than the bounds.
        complaints: Where the first that does not fit is noted.
        most_values: Bound on mappings, lists, keys and scalars together.
        most_chars: Bound on all texts together.
    """
    waiting: list[tuple[KeyPath, Any]] = [((), value)]
    values = chars = 0
    while waiting:
        path, each = waiting.pop()
        values += 1
        chars += len(each) if isinstance(each, str) else 0
        if values > most_values or chars > most_chars or len(path) > DEPTH_LIMIT:
            complaints.add(path, _too_much(most_values, most_chars))
            return
        if reason := _wrong(each):
            complaints.add(path, reason)
            return
        if isinstance(each, dict):
            chars += sum(len(key) for key in each)
            waiting.extend(((*path, key), below) for key, below in reversed(each.items()))
        elif isinstance(each, list):
            waiting.extend(((*path, index), below) for index, below in reversed(list(enumerate(each))))


def _wrong(value: Any) -> str | None:
    if isinstance(value, dict):
        if not all(isinstance(key, str) and SURROGATE.search(key) is None for key in value):
            return "a key is no text that can be written"
    elif isinstance(value, bool) or value is None or isinstance(value, list):
        return None
    elif isinstance(value, int):
        return "this number is too large" if value.bit_length() > _NUMBER_BITS else None
    elif isinstance(value, float):
        return None if math.isfinite(value) else f"{value!r} is not a number that can be reckoned with"
    elif isinstance(value, str):
        return "it holds half a surrogate pair" if SURROGATE.search(value) else None
    else:
        return f"a value of kind {type(value).__name__!r} has no place in stories"
    return None


def _too_much(values: int, chars: int) -> str:
    return (
        f"it holds more than {values} values or {chars} characters, or nests deeper than {DEPTH_LIMIT} levels"
    )
