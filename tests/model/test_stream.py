import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.model.conftest import frames_of

from ringfence.events import Usage
from ringfence.model.base import ModelReply
from ringfence.model.scripted import parse_script
from ringfence.model.stream import ApiError, BrokenStream, EventReader, ReplyAssembly

START: dict[str, Any] = {"id": "msg_1", "model": "m", "role": "assistant", "usage": {"input_tokens": 3}}


def assembled(*events: dict[str, Any]) -> ModelReply:
    """The reply that these events make."""
    assembly = ReplyAssembly()
    for event in events:
        assembly.take(event["type"], json.dumps(event))
    return assembly.finish()


def of_blocks(*blocks: dict[str, Any], stop_reason: str = "end_turn") -> list[dict[str, Any]]:
    """The events of a reply with these blocks, each whole at its start."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": START}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop_reason}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
    return [*events, {"type": "message_stop"}]


def call_cut_short(stop_reason: str) -> list[dict[str, Any]]:
    """The events of a reply whose tool call breaks off."""
    events = of_blocks({"type": "tool_use", "id": "t", "name": "shell", "input": {}}, stop_reason=stop_reason)
    delta = {"type": "input_json_delta", "partial_json": '{"command": "rm -rf /tm'}
    return [*events[:2], {"type": "content_block_delta", "index": 0, "delta": delta}, *events[2:]]


def test_a_tool_call_cut_by_max_tokens_is_left_out():
    """Half a command never looks like a command."""
    reply = assembled(*call_cut_short("max_tokens"))
    assert reply.content == ()
    assert reply.stop_reason == "max_tokens"


def test_a_tool_call_that_is_no_json_breaks_the_stream():
    """Where the reply claims to be complete, half a call means a broken stream."""
    with pytest.raises(BrokenStream, match="not JSON"):
        assembled(*call_cut_short("tool_use"))


def test_what_servers_refuse_to_have_back_is_left_out():
    """Nulls, the default caller and empty text go; everything else stays."""
    reply = assembled(
        *of_blocks(
            {"type": "text", "text": ""},
            {"type": "text", "text": "x", "citations": None},
            {"type": "tool_use", "id": "t", "name": "n", "input": {}, "caller": {"type": "direct"}},
            {"type": "tool_use", "id": "u", "name": "n", "input": {"a": None}, "caller": {"type": "other"}},
            {"type": "later_kind", "payload": [1]},
        )
    )
    assert reply.content == (
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {}},
        {"type": "tool_use", "id": "u", "name": "n", "input": {"a": None}, "caller": {"type": "other"}},
        {"type": "later_kind", "payload": [1]},
    )


def test_counts_of_the_end_replace_those_of_the_start():
    """`message_delta` carries totals; what it leaves out stays."""
    usage = assembled(*of_blocks()).usage
    assert (usage.input_tokens, usage.output_tokens) == (3, 7)


def test_what_costs_besides_tokens_is_counted():
    """Caches that last an hour, searches, and a container that executed code."""
    created = {"ephemeral_1h_input_tokens": 5, "ephemeral_5m_input_tokens": 2}
    start = {**START, "usage": {"cache_creation_input_tokens": 7, "cache_creation": created}}
    block = {"type": "server_tool_use", "id": "s", "name": "bash_code_execution", "input": {}}
    events = of_blocks(block, block)
    events[0] = {"type": "message_start", "message": start}
    events[-2]["usage"] = {"output_tokens": 7, "server_tool_use": {"web_search_requests": 3}}
    assert assembled(*events).usage == Usage(
        output_tokens=7,
        cache_creation_input_tokens=7,
        cache_creation_1h_input_tokens=5,
        web_search_requests=3,
        code_execution_containers=1,
    )


def test_kinds_of_events_that_are_not_known_are_passed_over():
    """The API may add some."""
    events = of_blocks({"type": "text", "text": "x"})
    assert assembled(*events[:1], {"type": "news"}, {"type": "ping"}, *events[1:]).content


def test_an_error_event_is_raised_with_its_type():
    """Its type decides what happens next."""
    with pytest.raises(ApiError) as caught:
        assembled({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert (caught.value.error_type, caught.value.message) == ("overloaded_error", "busy")


WHOLE = of_blocks({"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b", "signature": "c"})
DISORDER = {
    "twice begun": [WHOLE[0], *WHOLE],
    "a block without a start": [WHOLE[0], *WHOLE[2:]],
    "a block without an end": [*WHOLE[:2], *WHOLE[3:]],
    "no stop reason": [*WHOLE[:-2], WHOLE[-1]],
    "no message": WHOLE[1:],
    "an index out of order": [WHOLE[0], WHOLE[3], *WHOLE[1:]],
    "usage below zero": [{**WHOLE[0], "message": {**START, "usage": {"input_tokens": -1}}}, *WHOLE[1:]],
}


@pytest.mark.parametrize("events", DISORDER.values(), ids=DISORDER.keys())
def test_disorder_is_a_broken_stream(events: list[dict[str, Any]]):
    """Nothing is guessed."""
    with pytest.raises(BrokenStream):
        assembled(*events)


@given(st.integers(min_value=0, max_value=30))
def test_no_beginning_of_a_stream_is_a_reply(count: int):
    """However late it breaks off, there is no reply before `message_stop`."""
    script = "turns: [{thinking: t, text: some text, tools: [{name: a}, {name: b}], piece_chars: 4}]"
    *frames, _ = frames_of(parse_script(script).turns[0])
    kept = [json.loads(frame.partition(b"data: ")[2]) for frame in frames[:count]]
    with pytest.raises(BrokenStream):
        assembled(*kept)


KINDS = {event["type"] for event in WHOLE} | {"content_block_delta", "error"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


@given(
    st.one_of(st.sampled_from(sorted(KINDS)), st.text(max_size=20)),
    json_values | st.dictionaries(st.text(), json_values),
)
def test_no_event_raises_anything_but_a_broken_stream(name: str, data: Any):
    """Whatever JSON a server sends, the failure is one that the retries know."""
    assembly, failure = ReplyAssembly(), None
    try:
        assembly.take(name, json.dumps(data))
        assembly.finish()
    except Exception as exc:  # noqa: BLE001 -- which one it is, is the question
        failure = exc
    assert failure is None or isinstance(failure, BrokenStream | ApiError)


LINE_ENDS = ["\n", "\r", "\r\n"]


@given(
    st.lists(st.text(max_size=20).map(lambda text: text.replace("\r", "").replace("\n", "")), max_size=5),
    st.sampled_from(LINE_ENDS),
    st.integers(1, 9),
    st.booleans(),
)
def test_events_are_cut_by_every_line_end_wherever_the_bytes_are_cut(
    texts: list[str], end: str, chunk: int, has_mark: bool
):
    """CR, LF and CRLF end lines, nothing else does; a byte order mark at the start is skipped."""
    stream = "".join(f"event: e{end}: comment{end}data: {text}.{end}{end}" for text in texts)
    raw = (b"\xef\xbb\xbf" if has_mark else b"") + stream.encode()
    reader = EventReader()
    got = [event for at in range(0, len(raw), chunk) for event in reader.feed(raw[at : at + chunk])]
    assert got == [("e", f"{text}.") for text in texts]


def test_data_of_several_lines_is_one_text():
    """Lines are joined by a line feed."""
    assert list(EventReader().feed(b"event: e\ndata: a\ndata: b\n\n")) == [("e", "a\nb")]


def test_an_event_that_does_not_end_is_none():
    """What stands before the end of the stream without a blank line is dropped."""
    assert list(EventReader().feed(b"event: e\ndata: a\n")) == []


def test_bytes_that_are_not_utf_8_break_the_stream():
    """They are not guessed at."""
    with pytest.raises(BrokenStream, match="not UTF-8"):
        list(EventReader().feed(b"data: \xff\n\n"))


@pytest.mark.parametrize(
    ("limit", "data"),
    [("MAX_EVENT_BYTES", b"data: " + b"x" * 100), ("MAX_REPLY_BYTES", b": comment\n\n" * 20)],
)
def test_a_stream_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch, limit: str, data: bytes):
    """Neither one event nor all of them together fill the memory."""
    monkeypatch.setattr(f"ringfence.model.stream.{limit}", 99)
    with pytest.raises(BrokenStream, match="larger than 99 bytes"):
        list(EventReader().feed(data))
