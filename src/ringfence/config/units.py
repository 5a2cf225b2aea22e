"""Sizes and durations as people write them: `512m`, `2GiB`, `1.5h`, `90`."""

import re
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[kmgt]?)(?:i?b)?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def parse_size(text: str | int) -> int:
    """Bytes in a size such as `512m`, `2GiB` or `1048576`. Units are powers of 1024, as Docker reads them.

    Raises:
        ValueError: It is not a size, or not above zero.
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ValueError(f"{text!r} is not a size; write a number and a unit, like 512m or 2g")
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write a number and a unit, like 512m or 2g")
    count = int(float(match["number"]) * _FACTORS[match["unit"].lower()])
    if count <= 0:
        raise ValueError(f"{text!r} is not above zero; write a size like 512m or 2g")
    return count


def parse_duration(text: str | float) -> float:
    """Seconds in a duration such as `90`, `1.5h` or `250ms`.

    Raises:
        ValueError: It is not a duration, or not above zero.
    """
    match = None if isinstance(text, bool) else _DURATION.fullmatch(str(text).strip())
    seconds = float(match["number"]) * _SECONDS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise ValueError(
            f"{text!r} is not a duration; write seconds or a number and a unit, like 90, 30m or 1.5h"
        )
    return seconds


class ByteCount(int):
    """A number of bytes; pydantic fields of this type accept what `parse_size` reads."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Validate through `parse_size`; publish as integer or string."""
        return core_schema.no_info_before_validator_function(
            lambda value: cls(parse_size(value)),
            core_schema.int_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(int),
            json_schema_input_schema=core_schema.union_schema(
                [core_schema.int_schema(), core_schema.str_schema()]
            ),
        )


class _Duration:
    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(
            parse_duration,
            core_schema.float_schema(),
            json_schema_input_schema=core_schema.union_schema(
                [core_schema.float_schema(), core_schema.str_schema()]
            ),
        )


Seconds = Annotated[float, _Duration]
"""A duration in seconds; accepts what `parse_duration` reads."""
