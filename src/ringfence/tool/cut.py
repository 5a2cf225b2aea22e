"""Cutting long text to a budget: head and tail are kept, and the cut says how much is missing."""

import json


def cut_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """`text` in about `limit_chars` characters.

    Args:
        text: What is to be shown.
        limit_chars: Head and tail together are at most this long; the marker between them comes on top.
        total_bytes: How much there was, where `text` is itself what was left of something longer.

    Returns:
        `text` itself if it fits, else its head, a line such as `[... 1234 bytes cut ...]`, and its tail.
    """
    if len(text) <= limit_chars:
        return text
    tail_length = limit_chars // 2
    head = text[: limit_chars - tail_length]
    tail = text[len(text) - tail_length :]
    whole = _size(text) if total_bytes is None else total_bytes
    return f"{head}\n[... {max(whole - _size(head) - _size(tail), 1)} bytes cut ...]\n{tail}"


def cut_json_text(text: str, limit_chars: int, *, total_bytes: int | None = None) -> str:
    """`text`, cut so that its spelling as a JSON string stays near `limit_chars`.

    A control byte takes six characters there.
    """
    allowed = limit_chars
    cut = cut_text(text, allowed, total_bytes=total_bytes)
    while allowed > 1 and len(json.dumps(cut, ensure_ascii=False)) > limit_chars + _MARKER_ROOM:
        allowed //= 2
        cut = cut_text(text, allowed, total_bytes=total_bytes)
    return cut


_MARKER_ROOM = 64


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
