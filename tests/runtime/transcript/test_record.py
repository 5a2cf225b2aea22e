"""Lines become records, or damage that is told."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.runtime.transcript.record import (
    MAX_DEPTH,
    Damage,
    Item,
    LineSplitter,
    Record,
    parse,
    parse_rest,
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def _parsed(data: bytes) -> list[Item]:
    splitter = LineSplitter()
    (line,) = splitter.feed(data + b"\n")
    return parse(line)


def _nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@given(st.dictionaries(st.text(), _JSON))
def test_every_object_is_a_record(value: dict[str, Any]) -> None:
    """Whatever a client writes as a JSON object comes back, lone surrogates too."""
    assert _parsed(json.dumps(value).encode()) == [Record(1, 0, value)]


@given(st.binary().filter(lambda data: b"\n" not in data))
def test_no_line_is_an_error(data: bytes) -> None:
    """Any bytes give records and damage, never an exception."""
    assert all(isinstance(item, Record | Damage) for item in _parsed(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b"7", "is no JSON object"),
        (b"\0\0", "begins with 2 NUL bytes"),
        (_nested(MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        (_nested(100_000), f"nested deeper than {MAX_DEPTH}"),
        (b"[" * 100_000, f"nested deeper than {MAX_DEPTH}"),
    ],
    ids=["torn", "array", "number", "nul", "deep", "very-deep", "only-brackets"],
)
def test_what_is_no_record_is_told(data: bytes, reason: str) -> None:
    """Such a line is damage, with its reason, size and hash."""
    (damage,) = _parsed(data)
    assert isinstance(damage, Damage)
    assert reason in damage.reason
    assert (damage.size, len(damage.digest or "")) == (len(data), 64)


@pytest.mark.parametrize(
    ("data", "value", "reason"),
    [
        (b'\0\0{"a":1}', {"a": 1}, "2 NUL bytes"),
        (b'{"a":"\xff"}', {"a": "\ufffd"}, "no UTF-8"),
    ],
    ids=["nul-before", "bad-utf8"],
)
def test_what_can_be_saved_is_saved_and_told(data: bytes, value: dict[str, Any], reason: str) -> None:
    """Of a damaged line that still holds an object both are given."""
    damage, record = _parsed(data)
    assert isinstance(damage, Damage)
    assert isinstance(record, Record)
    assert (reason in damage.reason, record.value) == (True, value)


def test_as_deep_as_is_allowed() -> None:
    """The bound itself is let through."""
    (record,) = _parsed(_nested(MAX_DEPTH))
    assert isinstance(record, Record)


def test_a_blank_line_is_nothing() -> None:
    """It is neither a record nor damage."""
    assert _parsed(b"  \r") == []


def test_half_a_last_line_is_told_as_such() -> None:
    """A writer that died in the middle leaves damage that says so; a whole record without an end counts."""
    splitter = LineSplitter()
    splitter.feed(b'{"a":')
    rest = splitter.rest()
    assert rest is not None
    (torn,) = parse_rest(rest)
    splitter = LineSplitter()
    splitter.feed(b'{"a":1}')
    rest = splitter.rest()
    assert rest is not None
    assert isinstance(torn, Damage)
    assert "has no end" in torn.reason
    assert parse_rest(rest) == [Record(1, 0, {"a": 1})]
