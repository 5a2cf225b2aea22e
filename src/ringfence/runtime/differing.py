"""Where two recorded things differ, for people: conversations, texts, JSON of which nothing is known."""

import operator
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgspec

from ringfence.model.base import JSONObject

_SHOWN_CHARS = 120
_DEEPEST = 40
_NOTHING: Final = object()

Shown = Callable[[str], str]
"""What of a text counts in a comparison."""


def text_difference(before: str, after: str, shown: Shown) -> str | None:
    """The first difference between two texts; None if there is none."""
    if before == after or shown(before) == shown(after):
        return None
    return lines_difference(before, after, shown)


def value_difference(before: Any, after: Any, shown: Shown, place: str = "", depth: int = 0) -> str | None:
    """The first difference between two JSON values, with its place in them; None if there is none."""
    if not _differ(before, after, shown):
        return None
    for name, was, now in _steps(before, after) if depth < _DEEPEST else ():
        if was is _NOTHING or now is _NOTHING:
            return f"{_joined(place, name)} is {'new' if was is _NOTHING else 'gone'}"
        found = value_difference(was, now, shown, _joined(place, name), depth + 1)
        if found is not None:
            return found
    told = lines_difference(_text(before), _text(after), shown)
    return f"{place}: {told}" if place else told


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place and not name.startswith("[") else f"{place}{name}"


def _steps(before: Any, after: Any) -> list[tuple[str, Any, Any]]:
    """What two values of one kind hold, side by side; nothing for what holds nothing."""
    if isinstance(before, dict) and isinstance(after, dict):
        names = (*before, *(name for name in after if name not in before))
        return [(_named(name), before.get(name, _NOTHING), after.get(name, _NOTHING)) for name in names]
    if isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(before, after, fillvalue=_NOTHING)
        return [(f"[{place}]", *pair) for place, pair in enumerate(pairs)]
    return []


def _named(name: str) -> str:
    return name if name.isidentifier() and len(name) < _SHOWN_CHARS else _short(name)


def conversation_difference(
    recorded: Sequence[JSONObject], now: Sequence[JSONObject], shown: Shown
) -> str | None:
    """The first difference between two conversations, for people; None if there is none."""
    for index, (before, after) in enumerate(zip(recorded, now, strict=False)):
        if _differ(before, after, shown):
            return _message_difference(index, before, after, _call_names(recorded), shown)
    if len(recorded) != len(now):
        return f"the conversation has {len(now)} messages, recorded are {len(recorded)}"
    return None


def _differ(before: Any, after: Any, shown: Shown) -> bool:
    return bool(before != after and shown(_text(before)) != shown(_text(after)))


def _call_names(messages: Sequence[JSONObject]) -> dict[str, str]:
    return {
        block["id"]: f"{block['name']} {_short(str(block['input'].get('command', block['input'])))}"
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use"
    }


def _message_difference(
    index: int, before: JSONObject, after: JSONObject, names: dict[str, str], shown: Shown
) -> str:
    old, new = before["content"], after["content"]
    if before["role"] == after["role"] and isinstance(old, list) and isinstance(new, list):
        for old_block, new_block in zip(old, new, strict=False):
            if _differ(old_block, new_block, shown):
                return _block_difference(index, old_block, new_block, names, shown)
    return f"message {index + 1} ({before['role']}): {lines_difference(_text(old), _text(new), shown)}"


def _block_difference(
    index: int, before: JSONObject, after: JSONObject, names: dict[str, str], shown: Shown
) -> str:
    call_id = before.get("tool_use_id")
    if before.get("type") != "tool_result" or call_id != after.get("tool_use_id"):
        return f"message {index + 1}: {lines_difference(_text(before), _text(after), shown)}"
    call = f"the result of call {call_id} ({names.get(str(call_id), 'unknown')})"
    old, new = before.get("content"), after.get("content")
    if not _differ(old, new, shown):
        return f"{call} {'is an error now' if after.get('is_error') else 'is no error now'}"
    return f"{call} differs: {_result_difference(old, new, shown)}"


def _result_difference(before: Any, after: Any, shown: Shown) -> str:
    """By field, where results are JSON objects, as those of `shell`."""
    old, new = _fields(before), _fields(after)
    if old is not None and new is not None:
        for name in (*old, *(name for name in new if name not in old)):
            if name not in old or name not in new:
                return f"{name} is {'gone' if name in old else 'new'}"
            if _differ(old[name], new[name], shown):
                return f"{name}: {lines_difference(_text(old[name]), _text(new[name]), shown)}"
    return lines_difference(_text(before), _text(after), shown)


def _fields(content: Any) -> JSONObject | None:
    try:
        found = msgspec.json.decode(content) if isinstance(content, str) else None
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return found if isinstance(found, dict) else None


def lines_difference(before: str, after: str, shown: Shown) -> str:
    """The first difference between two texts that differ in what is shown of them, for people."""
    # Elsewhere than in results, JSON within a text spells line ends.
    old, new = before.replace("\\n", "\n"), after.replace("\\n", "\n")
    # What is masked has as many lines as before.
    marks = map(operator.ne, shown(old).split("\n"), shown(new).split("\n"))
    old_lines, new_lines = old.split("\n"), new.split("\n")
    for number, is_other in enumerate(marks, 1):
        if is_other:
            was, now = _around(old_lines[number - 1], new_lines[number - 1])
            return f"line {number} was {was}, now is {now}"
    return f"it has {len(new_lines)} lines, recorded are {len(old_lines)}"


def _around(before: str, after: str) -> tuple[str, str]:
    """Two lines, short; where they are long, from shortly before they differ."""
    alike = next((n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    start = max(0, alike - _SHOWN_CHARS // 2) if max(len(before), len(after)) > _SHOWN_CHARS else 0
    return _short(before, start), _short(after, start)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return msgspec.json.encode(content, order="deterministic").decode()


def _short(text: str, start: int = 0) -> str:
    cut = text[start : start + _SHOWN_CHARS]
    return repr(f"{'...' if start else ''}{cut}{'...' if len(text) > start + _SHOWN_CHARS else ''}")
