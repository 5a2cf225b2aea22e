"""Formats a policy as lines for people: sizes with units, each limit with its enforcement, no empty values."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SIZES = frozenset({"memory", "disk", "tmp"})
_ENFORCED = {
    "kernel": "by the kernel",
    "soft": "watched, short bursts are not stopped",
    "none": "not enforced here",
}


def policy_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the document that `ringfence config policy show --json` prints. The caller escapes them."""
    for key, value in document.items():
        if key == "enforced" or value in (None, [], {}):
            continue
        title = key.replace("_", " ")
        items = _items(key, value, document)
        if items is None:
            yield f"{title}: {value}"
            continue
        if not items:
            continue
        yield f"{title}:"
        yield from (f"  - {item}" for item in items)


def _items(key: str, value: Any, document: Mapping[str, Any]) -> list[str] | None:
    """The items below a heading; None if the value is printed beside it."""
    if key == "limits":
        enforced = document.get("enforced", {})
        return [_limit(name, of, enforced.get(name)) for name, of in value.items() if of is not None]
    if key == "environment" and isinstance(value, list):
        return [", ".join(value)]
    if key == "mounts":
        return [
            f"{mount['target']} from {mount['source']}{', read-only' if mount['read_only'] else ''}"
            for mount in value
        ]
    if key == "loosened":
        return [f"{item['what']} (set by {item['by']})" for item in value]
    if key == "notes":
        return merge_notes(value)
    return [str(item) for item in value] if isinstance(value, list) else None


def _limit(name: str, value: float, enforced: str | None) -> str:
    from ringfence.config.units import format_duration, format_size

    if name == "ttl_s":
        return f"life: {format_duration(value)}"
    shown = format_size(int(value)) if name in _SIZES else f"{value:g}"
    return f"{name}: {shown}" + (f", {_ENFORCED[enforced]}" if enforced else "")


def merge_notes(notes: Iterable[str]) -> list[str]:
    """Merge notes of one kind into one line: `toolchain shown read-only: A, B`."""
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kind, _, detail = note.partition(": ")
        kinds.setdefault(kind, []).append(detail)
    return [f"{kind}: {', '.join(details)}" if details[0] else kind for kind, details in kinds.items()]
