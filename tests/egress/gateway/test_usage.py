"""Counting what passes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.egress.gateway.conftest import begin, end, event, text

from ringfence.egress.gateway.event_stream import EventReader
from ringfence.egress.gateway.response_reader import ResponseReader
from ringfence.events import Usage

STREAMS: dict[str, tuple[list[dict[str, Any]], Usage]] = {
    "responses": (
        [
            {"type": "response.created", "response": {"model": "gpt", "usage": None}},
            {"type": "response.output_text.delta", "delta": "hello"},
            {
                "type": "response.completed",
                "response": {
                    "model": "gpt",
                    "usage": {
                        "input_tokens": 100,
                        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
                        "output_tokens": 7,
                    },
                },
            },
        ],
        Usage(input_tokens=10, cache_read_input_tokens=60, cache_creation_input_tokens=30, output_tokens=7),
    ),
    "chat": (
        [
            {"model": "gpt", "choices": [{"delta": {"content": "hello"}}], "usage": None},
            {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 3}},
        ],
        Usage(input_tokens=10, output_tokens=3),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_of_openai_is_counted_by_its_last_words(name: str):
    """Tokens read from the cache or written to it are part of the input, and are not counted twice."""
    events, usage = STREAMS[name]
    reader = ResponseReader(400)
    reader.take_stream(
        b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events) + b"data: [DONE]\n\n"
    )
    assert reader.is_final
    assert reader.usage == usage
    assert reader.model == "gpt"


@given(st.lists(st.integers(min_value=0, max_value=600), max_size=8))
def test_a_stream_is_counted_alike_wherever_it_is_cut(places: list[int]):
    """Pieces of the network have nothing to do with events."""
    data = begin(30) + text("one ") + text("two") + end(9)
    reader = ResponseReader(0)
    last = 0
    for place in [*sorted(places), len(data)]:
        reader.take_stream(data[last:place])
        last = max(last, place)
    assert reader.usage == Usage(input_tokens=30, output_tokens=9)
    assert reader.is_final


@given(
    st.sampled_from([b"\n", b"\r", b"\r\n"]),
    st.lists(st.integers(min_value=0, max_value=800), max_size=12),
    st.booleans(),
)
def test_lines_may_end_in_each_way_of_the_standard(end_of_line: bytes, places: list[int], has_mark: bool):
    """A carriage return, a line feed or both end a line, also where a piece ends between them."""
    data = (
        (b"\xef\xbb\xbf" if has_mark else b"")
        + begin(30)
        + text("one ")
        + b": comment\n"
        + text("two")
        + end(9)
    )
    data = data.replace(b"\n", end_of_line)
    reader = ResponseReader(0)
    last = 0
    for place in [*sorted(places), len(data)]:
        reader.take_stream(data[last:place])
        last = max(last, place)
    assert reader.usage == Usage(input_tokens=30, output_tokens=9)
    assert reader.is_final
    assert reader.verdict(200).is_complete
    assert not reader.verdict(200).error


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.sampled_from([b"\n", b"\r", b"\r\n"])), max_size=8),
    st.data(),
)
def test_events_are_read_alike_wherever_they_are_cut(lines: list[tuple[bytes, bytes]], data: st.DataObject):
    """Whatever a server sends."""
    stream = b"".join(b"data:" + line + end_of_line for line, end_of_line in lines)
    at_once = EventReader()
    wanted = [*at_once.feed(stream), at_once.finish()]
    reader, found = EventReader(), list[bytes | None]()
    while stream:
        size = data.draw(st.integers(min_value=1, max_value=len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert [*found, reader.finish()] == wanted


def test_data_lines_of_one_event_belong_together():
    """As clients join them; an event that is cut off at the end is counted too."""
    reader = ResponseReader(0)
    reader.take_stream(
        b'data: {"type": "message_delta",\ndata:"delta": {}, "usage":\ndata: {"output_tokens": 7}}\n'
    )
    assert reader.usage.output_tokens == 0
    reader.end_stream()
    assert reader.usage.output_tokens == 7
    assert reader.is_final


def test_an_event_without_end_is_bounded_and_counted():
    """In memory and in tokens."""
    reader = ResponseReader(0)
    for _ in range(40):
        reader.take_stream(b"data: " + b"x" * (1024 * 1024))
    assert reader.usage.output_tokens > 32 * 1024 * 1024 // 4


def test_a_stream_that_breaks_off_is_estimated():
    """The prompt was told, the answer is counted by its characters."""
    reader = ResponseReader(0)
    reader.take_stream(begin(30) + text("x" * 400))
    assert not reader.is_final
    assert reader.usage == Usage(input_tokens=30, output_tokens=100)


def test_a_whole_answer_is_counted():
    """With all four counts."""
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
    }
    reader = ResponseReader(0)
    reader.take_body(json.dumps({"model": "m", "usage": usage}).encode())
    assert reader.usage == Usage(**usage)


PAID = {
    "input_tokens": 1,
    "output_tokens": 2,
    "cache_creation_input_tokens": 7,
    "cache_creation": {"ephemeral_1h_input_tokens": 5, "ephemeral_5m_input_tokens": 2},
    "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1},
}
EXECUTED = {"type": "server_tool_use", "id": "s", "name": "code_execution", "input": {}}


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
def test_what_costs_besides_tokens_is_counted(is_stream: bool):
    """Caches that last an hour, searches, and a container that executed code."""
    reader = ResponseReader(0)
    if is_stream:
        reader.take_stream(
            event("message_start", message={"model": "m", "content": [], "usage": PAID})
            + event("content_block_start", index=0, content_block=EXECUTED)
            + event("content_block_start", index=1, content_block={"type": "text", "text": ""})
            + event("message_delta", delta={}, usage={"output_tokens": 2, "server_tool_use": None})
        )
    else:
        reader.take_body(json.dumps({"model": "m", "content": [EXECUTED], "usage": PAID}).encode())
    assert reader.is_final
    assert reader.usage == Usage(
        input_tokens=1,
        output_tokens=2,
        cache_creation_input_tokens=7,
        cache_creation_1h_input_tokens=5,
        web_search_requests=3,
        code_execution_containers=1,
    )


FIELDS = [
    "type", "model", "usage", "content", "delta", "content_block", "message", "response", "choices", "error", "status",
    "stop_reason", "finish_reason", "incomplete_details", "output", "code", "text", "tool_calls", "function",
    "arguments", "input_tokens", "output_tokens", "name", "input_tokens_details", "cached_tokens", "server_tool_use",
]  # fmt: skip
ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANY_JSON, max_size=6))
def test_fields_of_any_type_can_be_read(value: dict[str, Any]):
    """A field of an unexpected type counts as absent, and others are read."""
    reader = ResponseReader(10)
    data = json.dumps(value).encode()
    reader.take_stream(b"data: " + data + b"\n\n")
    reader.take_body(data)
    assert reader.usage.total >= 0
    assert isinstance(msgspec.json.encode(reader.verdict(200)), bytes)
    reader.take_stream(event("message_delta", delta={}, usage={"output_tokens": 7}))
    assert reader.usage.output_tokens == 7


@given(st.binary(max_size=300))
def test_any_bytes_can_be_counted(data: bytes):
    """What the API says is not believed to be sound."""
    reader = ResponseReader(10)
    reader.take_stream(b"data: " + data + b"\n\n")
    reader.take_body(data)
    assert reader.usage.total >= 0


@pytest.mark.parametrize("number", [b"1000000000001", b"9" * 30, b"9" * 400, b"1e308", b"-" + b"9" * 400])
def test_what_no_answer_can_have_taken_is_not_believed(number: bytes):
    """A count goes into the record and into a price, whatever the API says."""
    words = b'"input_tokens":%s,"prompt_tokens":%s,"input_tokens_details":{"cached_tokens":%s}'
    usage = b'{"usage":{' + words.replace(b"%s", number) + b"}}"
    reader = ResponseReader(10)
    reader.take_stream(b'data: {"message":' + usage + b"}\n\ndata: " + usage + b"\n\n")
    reader.take_body(usage)
    assert 0 <= reader.usage.total < 10**4
    assert msgspec.json.decode(msgspec.json.encode(reader.usage), type=Usage) == reader.usage


@pytest.mark.slow
def test_a_long_line_in_many_pieces_is_read_once():
    """Each piece costs what it is long, not what the line has become."""
    data = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "x" * 4_000_000})
    reader = ResponseReader(10)
    reader.take_stream(begin())
    for at in range(0, len(data), 8):
        reader.take_stream(data[at : at + 8])
    assert reader.usage.output_tokens == 1_000_000
