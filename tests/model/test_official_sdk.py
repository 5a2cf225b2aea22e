"""Our reading of the Messages API, held against Anthropic's own SDK: the same bytes, the same reply."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.conftest import frames_of
from tests.testing.scripted_model.test_roundtrip import turns

from ringfence.model.base import API_VERSION, ModelReply, ModelRequest
from ringfence.model.messages_api import encode_request
from ringfence.model.scripted.script import Turn
from ringfence.model.stream import ApiError, BrokenStream, EventReader, ReplyAssembly

ASKED = [{"role": "user", "content": "hi"}]


def of_sdk(*pieces: bytes) -> anthropic.types.Message:
    """The message that the SDK makes of a streamed answer."""
    requests: list[httpx2.Request] = []
    with client(requests, pieces) as sdk, sdk.messages.stream(**PARAMETERS) as stream:
        return stream.get_final_message()


def client(requests: list[httpx2.Request], pieces: tuple[bytes, ...]) -> anthropic.Anthropic:
    """The SDK before a server that answers everything so and keeps the requests."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=iter(pieces))

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(api_key="k", base_url="http://sdk.test", http_client=http, max_retries=0)


PARAMETERS: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": ASKED}


def of_ours(*pieces: bytes) -> ModelReply:
    """The reply that we make of the same answer."""
    reader, assembly = EventReader(), ReplyAssembly()
    for piece in pieces:
        for name, data in reader.feed(piece):
            assembly.take(name, data)
    return assembly.finish()


def agree(ours: ModelReply, theirs: anthropic.types.Message) -> None:
    """See that two readings are the same, but for what the API refuses to take back."""
    given_back = [block.model_dump(exclude_none=True, mode="json") for block in theirs.content]
    assert list(ours.content) == [block for block in given_back if block.get("text") != ""]
    assert (ours.message_id, ours.model, ours.stop_reason) == (theirs.id, theirs.model, theirs.stop_reason)
    usage = theirs.usage
    assert ours.usage.input_tokens == usage.input_tokens
    assert ours.usage.output_tokens == usage.output_tokens
    assert ours.usage.cache_creation_input_tokens == (usage.cache_creation_input_tokens or 0)
    assert ours.usage.cache_read_input_tokens == (usage.cache_read_input_tokens or 0)
    searches = usage.server_tool_use.web_search_requests if usage.server_tool_use else 0
    assert ours.usage.web_search_requests == searches


def cut(stream: bytes, chunk: int) -> Iterator[bytes]:
    """The stream in pieces."""
    return (stream[at : at + chunk] for at in range(0, len(stream), chunk))


@pytest.mark.slow
@settings(deadline=None)
@given(turns, st.integers(1, 200), st.sampled_from([b"\n", b"\r\n"]))
def test_both_read_any_turn_alike(turn: dict[str, Any], chunk: int, end: bytes):
    """Texts, thinking, tool calls, cut anywhere, with either end of line."""
    stream = b"".join(frame.replace(b"\n", end) for frame in frames_of(Turn.model_validate(turn)))
    agree(of_ours(*cut(stream, chunk)), of_sdk(*cut(stream, chunk)))


# As documented at platform.claude.com, "Streaming messages", with what servers add: comments, pings, unknown events.
SEARCH = b"""\
event: message_start
data: {"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"claude-opus-4-6",\
"content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":2679,"cache_creation_input_tokens":0,\
"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},\
"output_tokens":3,"service_tier":"standard"}}}

: keep-alive

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"srvtoolu_01",\
"name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"query\\": "}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\\"weather\\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: ping
data: {"type": "ping"}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result",\
"tool_use_id":"srvtoolu_01","content":[{"type":"web_search_result","title":"Weather","url":"https://a.example/",\
"encrypted_content":"E6/x==","page_age":"1 day"}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: news
data: {"type":"news"}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"","citations":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":\
{"type":"web_search_result_location","cited_text":"warm","url":"https://a.example/","title":"Weather",\
"encrypted_index":"Eo8="}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"It is warm."}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"input_tokens":10682,\
"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":510,\
"server_tool_use":{"web_search_requests":1}}}

event: message_stop
data: {"type":"message_stop"}

"""


def test_both_read_a_documented_answer_alike():
    """A search of the web, its result and a citation; what neither knows is skipped."""
    ours = of_ours(SEARCH)
    agree(ours, of_sdk(SEARCH))
    assert [block["type"] for block in ours.content] == ["server_tool_use", "web_search_tool_result", "text"]
    assert ours.content[0]["input"] == {"query": "weather"}
    assert ours.usage.cache_read_input_tokens == 7


def test_both_see_an_error_in_the_stream():
    """The type of the error is kept."""
    stream = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n'
    with pytest.raises(ApiError) as ours:
        of_ours(stream)
    with pytest.raises(anthropic.APIStatusError) as theirs:
        of_sdk(stream)
    assert ours.value.error_type == theirs.value.type == "overloaded_error"


@settings(deadline=None, max_examples=30)
@given(st.integers(0, SEARCH.index(b"event: message_stop") + 10))
def test_a_stream_that_ends_early_is_no_reply(length: int):
    """The SDK takes some of these for a message; for us none is one."""
    with pytest.raises(BrokenStream):
        of_ours(SEARCH[:length])


def test_the_request_is_the_one_that_the_sdk_sends():
    """Body and version, with a conversation that has what conversations have."""
    request = ModelRequest(
        model="claude-opus-5-5",
        system="Bé good.",
        messages=(
            *ASKED,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1.5}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ü \u2028"}]},
        ),
        tools=({"name": "n", "description": "d", "input_schema": {"type": "object"}},),
        max_tokens=99,
    )
    ours = encode_request(request)
    requests: list[httpx2.Request] = []
    with client(requests, (SEARCH,)) as sdk, sdk.messages.create(**json.loads(ours)):
        pass
    assert json.loads(requests[0].content) == json.loads(ours)
    assert requests[0].headers["anthropic-version"] == API_VERSION
    assert requests[0].url.path == "/v1/messages"
