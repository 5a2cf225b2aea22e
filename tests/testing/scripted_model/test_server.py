import json
import time

import anyio
import anyio.lowlevel
import httpx2
import pytest
from tests.cases import slow_after

from ringfence.errors import InfrastructureFault
from ringfence.testing.scripted_model import ScriptedModelServer, parse_script

from .conftest import Serving, body

CALLS = "- {thinking: hm, text: look, tools: [{name: shell, input: {command: ls}}, {name: read, input: {}}]}"
MESSAGES = "/v1/messages"


def events_of(text: str) -> list[tuple[str, dict[str, object]]]:
    """Names and data of the events in a stream."""
    pairs = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        pairs.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return pairs


async def test_the_events_come_in_the_order_of_the_api(serving: Serving):
    """Start, ping after the first block's start, deltas, stop; usage with the end."""
    async with serving(CALLS) as (_, client):
        response = await client.post(MESSAGES, json=body(stream=True))
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["request-id"].startswith("req_")
    block, delta, stop = "content_block_start", "content_block_delta", "content_block_stop"
    names = [name for name, _ in events_of(response.text)]
    assert names == [
        *("message_start", block, "ping", delta, delta, stop),
        *(block, delta, stop),
        *(block, delta, delta, stop),
        *(block, delta, delta, stop),
        *("message_delta", "message_stop"),
    ]


async def test_every_event_says_its_own_type(serving: Serving):
    """Name and `type` agree, and the message has the API's fields."""
    async with serving(CALLS) as (_, client):
        events = events_of((await client.post(MESSAGES, json=body(stream=True))).text)
    assert all(name == data["type"] for name, data in events)
    message = events[0][1]["message"]
    assert isinstance(message, dict)
    assert message["model"] == "any-model"
    assert message["content"] == []
    assert message["stop_reason"] is None
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


async def test_without_stream_the_reply_comes_in_one_piece(serving: Serving):
    """The same blocks, as one JSON document."""
    async with serving(CALLS) as (_, client):
        reply = (await client.post(MESSAGES, json=body())).json()
    assert [block["type"] for block in reply["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert reply["stop_reason"] == "tool_use"
    assert len({block["id"] for block in reply["content"][2:]}) == 2


async def test_blocks_may_be_given_in_the_shape_of_the_api(serving: Serving):
    """`content` keeps its order."""
    turn = (
        "- content: [{type: text, text: a}, {type: tool_use, name: t, input: {x: 1}}, {type: text, text: b}]"
    )
    async with serving(turn) as (_, client):
        reply = (await client.post(MESSAGES, json=body())).json()
    assert [block.get("text") or block["input"] for block in reply["content"]] == ["a", {"x": 1}, "b"]


async def test_errors_have_the_form_of_the_api(serving: Serving):
    """Body, headers and status, as often as said; then the reply."""
    turn = "- {error: {status: 429, retry_after: 7, times: 2, headers: {x-more: y}}, text: fine}"
    async with serving(turn) as (_, client):
        first, second, third = [await client.post(MESSAGES, json=body()) for _ in range(3)]
    assert first.status_code == second.status_code == 429
    assert first.json()["error"] == {"type": "rate_limit_error", "message": "scripted error"}
    assert first.json()["type"] == "error"
    assert first.json()["request_id"] == first.headers["request-id"]
    assert (first.headers["retry-after"], first.headers["x-more"]) == ("7.0", "y")
    assert third.json()["content"] == [{"type": "text", "text": "fine"}]


async def test_an_error_alone_is_a_turn(serving: Serving):
    """After it the next turn is due."""
    async with serving("- error: {status: 404}\n- text: next") as (server, client):
        statuses = [(await client.post(MESSAGES, json=body())).status_code for _ in range(2)]
    assert statuses == [404, 200]
    assert server.turns_done == 2


async def test_an_exhausted_script_says_so(serving: Serving):
    """400 with the file and the number of turns."""
    async with serving("- text: only") as (_, client):
        await client.post(MESSAGES, json=body())
        response = await client.post(MESSAGES, json=body())
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "the script '<script>' is exhausted after turn 1"


RESULT = {
    "type": "tool_result",
    "tool_use_id": "t",
    "is_error": True,
    "content": [{"type": "text", "text": "boo"}],
}
ASKED = body(
    {"role": "user", "content": "please"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
    {"role": "user", "content": [RESULT, {"type": "text", "text": "and now"}]},
    system=[{"type": "text", "text": "be good"}],
    tools=[{"name": "shell"}],
)


@pytest.mark.parametrize(
    "expectation",
    [
        "last_tool_result: boo",
        "last_tool_is_error: true",
        "last_user_text: now",
        "system: good",
        "tools: [shell]",
        "messages: 3",
    ],
)
async def test_an_expectation_that_is_met_lets_the_turn_happen(serving: Serving, expectation: str):
    """All parts of a request can be looked at."""
    async with serving(f"- text: fine\n  expect: {{{expectation}}}") as (_, client):
        assert (await client.post(MESSAGES, json=ASKED)).status_code == 200


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ("last_tool_result: xyz", "expected the last tool result to contain 'xyz', got 'boo'"),
        ("last_tool_is_error: false", "expected is_error of the last tool result to be False"),
        ("last_user_text: xyz", "expected the last user message to contain 'xyz', got 'and now'"),
        ("system: xyz", "expected the system prompt to contain 'xyz', got 'be good'"),
        ("tools: [nope]", "expected the tool 'nope' to be offered, got ['shell']"),
        ("messages: 4", "expected 4 messages, got 3"),
    ],
)
async def test_an_expectation_that_is_not_met_names_the_line(
    serving: Serving, expectation: str, message: str
):
    """400 with the script's line, and the turn stays due."""
    async with serving(f"- text: fine\n  expect: {{{expectation}}}") as (server, client):
        response = await client.post(MESSAGES, json=ASKED)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == f"<script>:2: {message}"
    assert server.turns_done == 0


CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "n", "input": {}}]}
HELLO = {"role": "user", "content": "hi"}
MARKED = {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}] * 5}
REFUSED = {
    "no max_tokens": ({"model": "m", "messages": [HELLO]}, "max_tokens: Field required"),
    "no messages": (body() | {"messages": []}, "first message must use the user role"),
    "assistant first": (body(CALLED), "first message must use the user role"),
    "a wrong role": (body({"role": "tool", "content": "x"}), r"messages.0: a role"),
    "a call without its result": (body(HELLO, CALLED, HELLO), "without `tool_result` blocks.*t1"),
    "a call at the end": (body(HELLO, CALLED), "without `tool_result` blocks"),
    "a result nobody asked for": (
        body({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t9", "content": ""}]}),
        "unexpected `tool_use_id`.*t9",
    ),
    "empty text": (body({"role": "user", "content": [{"type": "text", "text": ""}]}), "must be non-empty"),
    "five breakpoints": (body(MARKED), "maximum of 4 blocks"),
    "a list": ([1], "should be an object"),
}


@pytest.mark.parametrize(("asked", "message"), slow_after(3, REFUSED.values()), ids=REFUSED.keys())
async def test_what_the_api_refuses_is_refused(serving: Serving, asked: object, message: str):
    """Mistakes of a client show here, before they cost money."""
    async with serving("- text: fine") as (server, client):
        response = await client.post(MESSAGES, json=asked)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(response.json()["error"]["message"])
    assert server.turns_done == 0


async def test_a_request_without_a_credential_is_401(serving: Serving):
    """Any credential will do, but one must be there."""
    async with serving("- text: fine") as (_, client):
        del client.headers["x-api-key"]
        assert (await client.post(MESSAGES, json=body())).status_code == 401
        bearer = {"authorization": "Bearer x"}
        assert (await client.post(MESSAGES, json=body(), headers=bearer)).status_code == 200


async def test_requests_are_recorded(serving: Serving):
    """Tests can look at what a client sent, refused requests too."""
    async with serving("- text: fine") as (server, client):
        await client.post(f"{MESSAGES}?beta=true", json=body(system="s"), headers={"anthropic-beta": "b"})
        await client.get("/v1/nothing")
    first, second = server.requests
    assert (first.method, first.path, first.body["system"]) == ("POST", MESSAGES, "s")
    assert first.headers["anthropic-beta"] == "b"
    assert (second.method, second.path, second.body) == ("GET", "/v1/nothing", None)


async def test_other_endpoints_answer(serving: Serving):
    """Counting and listing, for clients that ask first; the rest is not found."""
    async with serving("- text: fine") as (_, client):
        asked = {"model": "m", "messages": [HELLO]}
        counted = await client.post(f"{MESSAGES}/count_tokens", json=asked)
        listed = await client.get("/v1/models")
        absent = await client.head("/")
        wrong = await client.get(MESSAGES)
    assert counted.json()["input_tokens"] > 0
    assert listed.json()["data"][0]["id"] == "scripted"
    assert (absent.status_code, wrong.status_code) == (404, 404)


async def test_a_turn_that_did_not_go_out_is_due_again(serving: Serving):
    """A client that goes away in the middle finds the same turn when it comes back."""
    async with serving("- {text: hello, stall: {seconds: 60}}\n- text: next") as (server, client):
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(MESSAGES, json=body(stream=True), timeout=httpx2.Timeout(30, read=0.1))
        reply = (await client.post(MESSAGES, json=body())).json()
    assert reply["content"][0]["text"] == "hello"
    assert server.turns_done == 1


async def test_requests_at_once_get_one_turn_each(serving: Serving):
    """A script is one line: nobody gets a turn twice, none is lost."""
    turns = "\n".join(f"- {{text: '{n}', slow: {{chunk_bytes: 40, delay_s: 0.001}}}}" for n in range(8))
    got: list[str] = []
    async with serving(turns) as (server, client):

        async def ask() -> None:
            got.append((await client.post(MESSAGES, json=body())).json()["content"][0]["text"])

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(ask)
    assert sorted(got) == [str(n) for n in range(8)]
    assert server.turns_done == 8


async def test_the_server_stops_while_an_answer_stalls():
    """Leaving the context ends every answer, and soon."""
    script = parse_script("turns: [{text: x, stall: {seconds: 60}}]")
    async with httpx2.AsyncClient(trust_env=False, headers={"x-api-key": "x"}) as client:
        async with ScriptedModelServer.serve(script) as server:
            request = client.build_request("POST", f"{server.base_url}{MESSAGES}", json=body(stream=True))
            response = await client.send(request, stream=True)
            began = time.monotonic()
        assert time.monotonic() - began < 30
        await response.aclose()


async def test_a_port_that_is_taken_is_a_clear_error():
    """It names the port and the way out."""
    script = parse_script("turns: [{text: x}]")
    async with ScriptedModelServer.serve(script) as server:
        port = int(server.base_url.rpartition(":")[2])
        with pytest.raises(InfrastructureFault, match=f"port {port} .*0 for any"):
            async with ScriptedModelServer.serve(script, port=port):
                pass


async def test_a_body_that_is_cut_breaks_the_reply_in_one_piece(serving: Serving):
    """The faults exist without streaming too."""
    async with serving("- {text: hello, drop: {after_events: 1}, malformed: {}}") as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post(MESSAGES, json=body())
        broken = await client.post(MESSAGES, json=body())
        with pytest.raises(json.JSONDecodeError):
            broken.json()
        assert (await client.post(MESSAGES, json=body())).json()["content"][0]["text"] == "hello"
