"""The Responses API, with the SDK of those who made it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
import openai
import pytest
from openai import AsyncOpenAI
from tests.cases import slow_after

from ringfence.testing.scripted_model import ScriptedModelServer, in_prompt, parse_script

from .raw import exchange

PATH = "/v1/responses"
TOOLS: list[Any] = [
    {"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "custom", "name": "apply_patch"},
]
SAYS_ALL = (
    "- {thinking: hm, text: look, tools: [{name: read, input: {path: a}}, "
    "{name: apply_patch, input: {input: '*** Begin'}}]}"
)


@asynccontextmanager
async def speaking(turns: str) -> AsyncIterator[tuple[ScriptedModelServer, AsyncOpenAI]]:
    """A served script (the list of turns only), and the SDK without retries."""
    async with (
        ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server,
        AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield server, client


async def test_a_reply_has_an_item_for_each_block():
    """Reasoning, message, a call with JSON, a call with text for the tool that takes text."""
    async with speaking(SAYS_ALL) as (_, client):
        reply = await client.responses.create(model="any", input="hi", tools=TOOLS)
    kinds = [item.type for item in reply.output]
    assert kinds == ["reasoning", "message", "function_call", "custom_tool_call"]
    assert (reply.status, reply.output_text) == ("completed", "look")
    assert [json.loads(item.arguments) for item in reply.output if item.type == "function_call"] == [
        {"path": "a"}
    ]
    assert [item.input for item in reply.output if item.type == "custom_tool_call"] == ["*** Begin"]


@pytest.mark.slow
async def test_what_is_streamed_adds_up_to_the_reply():
    """The SDK's own assembly of the stream is the reply that ends it."""
    async with (
        speaking(SAYS_ALL) as (_, client),
        client.responses.stream(model="any", input="hi", tools=TOOLS) as stream,
    ):
        events = [event async for event in stream]
        final = await stream.get_final_response()
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    arguments = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(texts) == final.output_text == "look"
    assert json.loads("".join(arguments)) == {"path": "a"}
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_a_tool_loop_goes_through_the_script():
    """Outputs are given back by `call_id`, and the next turn sees them."""
    turns = "- tools: [{name: read, input: {}}]\n- {text: done, expect: {last_tool_result: found}}"
    async with speaking(turns) as (server, client):
        first = await client.responses.create(model="any", input="hi", tools=TOOLS)
        call = first.output[0]
        assert call.type == "function_call"
        items: list[Any] = [
            {"role": "user", "content": "hi"},
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "found it"},
        ]
        second = await client.responses.create(model="any", input=items, tools=TOOLS)
    assert (second.output_text, server.turns_done) == ("done", 2)


async def test_tools_may_be_offered_by_an_item():
    """As codex does for some models, in a namespace; its `exec` gets a command as JavaScript."""
    offer = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    items: list[Any] = [
        {"type": "additional_tools", "role": "developer", "tools": [offer]},
        {"role": "user", "content": "hi"},
    ]
    async with speaking("- tools: [{run: ls}]") as (_, client):
        call = (await client.responses.create(model="any", input=items)).output[0]
    assert call.type == "custom_tool_call"
    assert (call.name, call.input) == (
        "exec",
        'const done = await tools.exec_command({cmd: "ls"}); text(done.output);',
    )


SPACE = {"type": "namespace", "name": "mcp__tiny", "description": "-", "tools": [TOOLS[0]]}


@pytest.mark.parametrize("offered", [SPACE, {"type": "tool_search"}], ids=["offered", "searched for"])
async def test_a_tool_of_a_namespace_is_called_in_it(offered: Any):
    """As codex offers those of MCP servers, or lets them be searched for; the script has one name for all clients."""
    async with speaking("- tools: [{name: mcp__tiny__read, input: {}}]") as (_, client):
        reply = await client.responses.create(model="any", input="hi", tools=[*TOOLS, offered])
    (call,) = (item.model_dump() for item in reply.output)
    assert (call["namespace"], call["name"]) == ("mcp__tiny", "read")


async def test_an_item_of_another_kind_is_nobodys_word():
    """Codex puts changes of its configuration into the conversation."""
    mark = in_prompt(parse_script("turns: [{text: carried}]"))
    items: list[Any] = [{"role": "user", "content": mark}, {"type": "configuration_update"}]
    async with speaking("- text: own") as (_, client):
        reply = await client.responses.create(model="any", input=items)
    assert reply.output_text == "carried"


async def test_cached_tokens_are_part_of_the_input():
    """Unlike in the Messages API."""
    turn = (
        "- {text: x, usage: {input_tokens: 10, cache_read_input_tokens: 5, "
        "cache_creation_input_tokens: 2, output_tokens: 3}}"
    )
    async with speaking(turn) as (_, client):
        usage = (await client.responses.create(model="any", input="hi")).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (17, 3, 20)
    assert usage.input_tokens_details.cached_tokens == 5
    assert usage.input_tokens_details.cache_write_tokens == 2


async def test_a_reply_that_was_cut_is_incomplete():
    """With the reason."""
    async with speaking("- {text: x, stop_reason: max_tokens}") as (_, client):
        reply = await client.responses.create(model="any", input="hi")
    assert reply.status == "incomplete"
    assert reply.incomplete_details is not None
    assert reply.incomplete_details.reason == "max_output_tokens"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, openai.BadRequestError, None),
        (401, openai.AuthenticationError, "invalid_api_key"),
        (429, openai.RateLimitError, "rate_limit_exceeded"),
        (503, openai.InternalServerError, None),
    ],
)
async def test_errors_have_the_form_of_the_api(
    status: int, kind: type[openai.APIStatusError], code: str | None
):
    """The SDK raises its own error for each, with message, code and the request's id."""
    async with speaking(f"- error: {{status: {status}, message: boo, retry_after: 3}}") as (_, client):
        with pytest.raises(kind) as caught:
            await client.responses.create(model="any", input="hi")
    assert caught.value.code == code
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"] == "boo"
    assert caught.value.request_id == "req_scripted_0001"
    assert caught.value.response.headers["retry-after"] == "3.0"


async def test_an_error_in_the_stream_is_a_failed_response():
    """The last event says why."""
    async with speaking("- {text: x, stream_error: {after_events: 3, message: boo}}") as (_, client):
        stream = await client.responses.create(model="any", input="hi", stream=True)
        events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert (last.response.error.code, last.response.error.message) == ("server_error", "boo")
    assert (len(events), last.sequence_number) == (4, 3)


async def test_a_stream_that_is_dropped_breaks_off():
    """The connection closes where the script says; then the turn is given again."""
    async with speaking("- {text: x, drop: {after_events: 2}}") as (server, client):
        stream = await client.responses.create(model="any", input="hi", stream=True)
        got = [(await anext(stream)).type for _ in range(2)]
        assert got == ["response.created", "response.in_progress"]
        with pytest.raises(openai.APIConnectionError):
            await anext(stream)
        assert server.turns_done == 0
        assert (await client.responses.create(model="any", input="hi")).output_text == "x"


async def test_the_stream_byte_by_byte():
    """Names, data and their order are those of the API, without a word at the end."""
    async with speaking("- {text: Hi, usage: {input_tokens: 1, output_tokens: 1}}") as (server, _):
        body = {"model": "m", "input": "x", "stream": True}
        answer = await anyio.to_thread.run_sync(exchange, server.base_url, PATH, body)
    assert answer.is_complete
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = answer.data.split(b"\n\n")
    assert frames.pop() == b""
    part = '{"type":"output_text","text":"%s","annotations":[],"logprobs":[]}'
    place = '"item_id":"msg_scripted_0001_00","output_index":0,"content_index":0'

    def frame_of(name: str, rest: str, number: int) -> str:
        return f'event: {name}\ndata: {{"type":"{name}",{place},{rest},"sequence_number":{number}}}'

    assert [frame.decode() for frame in frames[3:7]] == [
        frame_of("response.content_part.added", f'"part":{part % ""}', 3),
        frame_of("response.output_text.delta", '"delta":"Hi","logprobs":[]', 4),
        frame_of("response.output_text.done", '"text":"Hi","logprobs":[]', 5),
        frame_of("response.content_part.done", f'"part":{part % "Hi"}', 6),
    ]
    names = [frame.partition(b"\n")[0].decode().removeprefix("event: response.") for frame in frames]
    assert names[:3] + names[7:] == [
        "created",
        "in_progress",
        "output_item.added",
        "output_item.done",
        "completed",
    ]


CALL = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c9", "output": "x"}
REFUSED = {
    "no input": ({"model": "m"}, "Missing required parameter: 'input'."),
    "no model": ({"input": "x"}, "Missing required parameter: 'model'."),
    "an item that is none": (
        {"model": "m", "input": [3]},
        "Invalid type for 'input[0]': expected an object.",
    ),
    "a call without output": ({"model": "m", "input": [CALL]}, "No tool output found for function call c1."),
    "an output without a call": (
        {"model": "m", "input": [OUTPUT]},
        "No tool call found for function call output with call_id c9.",
    ),
    "an earlier response": (
        {"model": "m", "input": "x", "previous_response_id": "resp_1"},
        "Previous response with id 'resp_1' not found.",
    ),
    "no object": ([1], "We could not parse the JSON body of your request."),
}


@pytest.mark.parametrize(("asked", "message"), slow_after(2, REFUSED.values()), ids=REFUSED.keys())
async def test_what_the_api_refuses_is_refused(asked: object, message: str):
    """Mistakes of a client show here, before they cost money."""
    async with speaking("- text: fine") as (server, _):
        answer = await anyio.to_thread.run_sync(exchange, server.base_url, PATH, asked)
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["type"], error["message"]) == (400, "invalid_request_error", message)
    assert server.turns_done == 0


async def test_a_web_socket_is_declined():
    """426 sends codex to plain HTTP at once; 404 has it try again for seconds."""
    headers = {"authorization": "Bearer x", "connection": "upgrade", "upgrade": "websocket"}
    async with speaking("- text: fine") as (server, _):
        answer = await anyio.to_thread.run_sync(
            lambda: exchange(server.base_url, PATH, None, method="GET", headers=headers)
        )
    assert answer.status == 426


async def test_models_are_listed():
    """In the form that this SDK reads."""
    async with speaking("- text: fine") as (_, client):
        assert [model.id async for model in client.models.list()] == ["scripted"]
