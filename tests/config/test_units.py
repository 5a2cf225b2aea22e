"""Sizes and durations."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512m", 512 * 1024**2),
        ("2GiB", 2 * 1024**3),
        ("1.5k", 1536),
        (" 7 b ", 7),
        ("1048576", 1048576),
        (9, 9),
    ],
)
def test_size_is_read_in_powers_of_1024(text: str | int, count: int) -> None:
    """Sizes mean what they mean to Docker."""
    assert parse_size(text) == count


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lots",
        "-1m",
        "0",
        "0.1",
        "1e3",
        "٣m",
        True,
        1.5,
        None,
        "9" * 500,
        pytest.param(10**5000, id="huge"),
        "8388608t",
        "1mm",
    ],
)
def test_what_is_no_size_is_refused(text: object) -> None:
    """Whatever is not a size is a ValueError, never an overflow."""
    with pytest.raises(ValueError, match=r"size|digits"):
        parse_size(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("30m", 1800), ("1.5h", 5400), ("250ms", 0.25), (2, 2), (0.5, 0.5), ("1d", 86400)],
)
def test_duration_is_read_in_seconds(text: str | float, seconds: float) -> None:
    """Durations come out in seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "0",
        "-5",
        "1e9",
        "inf",
        math.inf,
        math.nan,
        True,
        None,
        [],
        "9" * 400,
        "3661d",
        pytest.param(10**5000, id="huge"),
    ],
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    """A duration is finite, positive and at most ten years."""
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)  # type: ignore[arg-type]


@given(st.integers(1, 2**63 - 1))
def test_every_size_survives_being_written(count: int) -> None:
    """format_size loses nothing, not even beyond what a float can hold."""
    assert parse_size(format_size(count)) == parse_size(count) == count


def test_no_bytes_are_written_without_unit() -> None:
    """Zero is no multiple of a unit."""
    assert format_size(0) == "0"


@given(st.floats(0.001, 10 * 365 * 86400))
def test_every_duration_survives_being_written(seconds: float) -> None:
    """format_duration loses nothing."""
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, rel_tol=1e-12)


@given(st.text(max_size=40))
def test_any_text_is_a_size_and_a_duration_or_a_value_error(text: str) -> None:
    """No text makes the parsers fail in another way."""
    for parse in (parse_size, parse_duration):
        with suppress(ValueError):
            assert parse(text) > 0
