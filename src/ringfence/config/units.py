"""Sizes and durations as people write them: `512m`, `2GiB`, `1.5h`, `90`."""

import re
from fractions import Fraction
from typing import Annotated

from pydantic import BeforeValidator

_SIZE = re.compile(
    r"(?P<number>-?\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII
)
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_LARGEST_SIZE = 2**63 - 1
_DURATION = re.compile(r"(?P<number>-?\d{1,30}(?:\.\d{1,30})?)\s*(?P<unit>ms|s|m|h|d)?", re.ASCII)
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1000}
_LONGEST_S = 3660 * 86_400.0
"""Ten years of 366 days."""


def parse_size(text: str | int) -> int:
    """Return the bytes in a size such as `512m`, `2GiB` or `1048576`. Units are powers of 1024, as Docker reads them.

    Raises:
        ValueError: The text is not a size, or the size is not between one byte and 8 EiB.
    """
    shown = _shorten_for_message(text)
    is_text_or_number = isinstance(text, str | int) and not isinstance(text, bool)
    match = _SIZE.fullmatch(shown.strip()) if is_text_or_number else None
    if match is None:
        raise ValueError(
            f"{shown!r} is not a size; write a number and a unit (k, m, g or t), such as 512m or 2g"
        )
    count = int(Fraction(match["number"]) * _FACTORS[match["unit"].lower()])
    if not 0 < count <= _LARGEST_SIZE:
        raise ValueError(f"{shown!r} is out of range: a size is from 1 byte to 8 EiB, such as 512m or 2g")
    return count


def format_size(count: int) -> str:
    """Write bytes with the largest unit that keeps them exact: `2g`, `1536m`, `1000`."""
    for unit in "tgmk":
        if count and count % _FACTORS[unit] == 0:
            return f"{count // _FACTORS[unit]}{unit}"
    return str(count)


def parse_duration(text: str | float) -> float:
    """Return the seconds in a duration such as `90`, `1.5h` or `250ms`.

    Raises:
        ValueError: The text is not a duration, or the duration is not more than zero and at most 3660 days.
    """
    shown = _shorten_for_message(text)
    is_text_or_number = isinstance(text, str | int | float) and not isinstance(text, bool)
    match = _DURATION.fullmatch(shown.strip()) if is_text_or_number else None
    if match is None:
        raise ValueError(
            f"{shown!r} is not a duration; write seconds, or a number and a unit (ms, s, m, h or d), such as 90, 30m or "
            "1.5h"
        )
    seconds = float(Fraction(match["number"]) * _MILLISECONDS[match["unit"]] / 1000)
    if not 0 < seconds <= _LONGEST_S:
        raise ValueError(
            f"{shown!r} is out of range: a duration is more than 0 and at most 3660 days, such as 90, 30m or 1.5h"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds with the largest unit that keeps them whole: `30m`, `90s`, `1.5s`."""
    for unit in ("d", "h", "m", "s", "ms"):
        in_unit = Fraction(seconds) * 1000 / _MILLISECONDS[unit]
        if in_unit.denominator == 1:
            return f"{in_unit.numerator}{unit}"
    return f"{seconds:.30f}".rstrip("0") + "s"


def _shorten_for_message(text: object) -> str:
    # Python refuses to print integers of more than 4300 digits.
    if isinstance(text, int) and text.bit_length() > 256:
        return "<a number of more than 70 digits>"
    message = str(text)
    return message if len(message) <= 80 else message[:77] + "..."


ByteCount = Annotated[int, BeforeValidator(parse_size, json_schema_input_type=int | str)]
"""A number of bytes. Fields of this type accept every value that `parse_size` reads."""
Seconds = Annotated[float, BeforeValidator(parse_duration, json_schema_input_type=float | str)]
"""A duration in seconds. Fields of this type accept every value that `parse_duration` reads."""
