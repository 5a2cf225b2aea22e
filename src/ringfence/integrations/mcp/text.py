"""Turns bytes from inside a sandbox into text for a client, and says where that loses something."""

import base64
from typing import Any

from ringfence.frozen import frozen

_LONGEST_CHARACTER = 4


@frozen
class Text:
    """Decoded bytes."""

    text: str
    is_replaced: bool
    """Whether some bytes were not UTF-8 and are shown as U+FFFD."""


def decode(data: bytes) -> Text:
    """Decode bytes as UTF-8; what is not UTF-8 is replaced."""
    try:
        return Text(data.decode(), is_replaced=False)
    except UnicodeDecodeError:
        return Text(data.decode("utf-8", "replace"), is_replaced=True)


def decode_page(data: bytes, *, is_last: bool) -> tuple[Text, int]:
    """Decode a page of a longer text; return it and how many bytes of the page it holds.

    An incomplete character at the end is left for the next page, unless this is the last one.
    """
    taken = len(data) if is_last else len(data) - _incomplete_tail(data)
    return decode(data[:taken]), taken


def encode_page(data: bytes, *, is_last: bool) -> tuple[dict[str, Any], int]:
    """Return a page of a file as fields of a result, and how many bytes of the page they hold.

    `text` if it is UTF-8, else `base64`; `encoding` says which.
    """
    taken = len(data) if is_last else len(data) - _incomplete_tail(data)
    try:
        return {"encoding": "utf-8", "text": data[:taken].decode()}, taken
    except UnicodeDecodeError:
        return {"encoding": "base64", "base64": base64.b64encode(data).decode()}, len(data)


def _incomplete_tail(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 that does not end there."""
    for length in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        lead = data[-length]
        if lead & 0xC0 == 0x80:
            continue
        needed = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4 if lead >> 3 == 0b11110 else 1
        return length if needed > length else 0
    return 0
