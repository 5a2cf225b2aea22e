"""The Chat Completions API, with the SDK of those who made it."""

import json
from typing import Any

import anyio.to_thread
import openai
import pytest
from tests.cases import slow_after

from .raw import exchange
from .test_responses import speaking

PATH = "/v1/chat/completions"
HELLO: Any = {"role": "user", "content": "hi"}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
SAYS_ALL = (
    "- {thinking: hm, text: look, tools: [{name: read, input: {path: a}}, {name: read, input: {path: b}}]}"
)


async def test_a_reply_has_text_and_calls():
    """One choice; thinking has no form here."""
    async with speaking(SAYS_ALL) as (_, client):
        reply = await client.chat.completions.create(model="any", messages=[HELLO], tools=TOOLS)
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("look", "tool_calls")
    calls = choice.message.tool_calls or []
    assert [call.function.arguments for call in calls if call.type == "function"] == [
        '{"path":"a"}',
        '{"path":"b"}',
    ]


async def test_what_is_streamed_adds_up_to_the_reply():
    """The SDK's own assembly of the chunks has text, calls, and the usage that was asked for."""
    async with (
        speaking(f"{SAYS_ALL}\n  ") as (_, client),
        client.chat.completions.stream(
            model="any", messages=[HELLO], tools=TOOLS, stream_options={"include_usage": True}
        ) as stream,
    ):
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert message.content == "look"
    assert [call.function.arguments for call in message.tool_calls or []] == ['{"path":"a"}', '{"path":"b"}']
    assert final.usage is not None
    assert final.usage.total_tokens == final.usage.prompt_tokens + final.usage.completion_tokens


async def test_a_tool_loop_goes_through_the_script():
    """Results are messages of their own, and the next turn sees them."""
    turns = (
        "- tools: [{name: read, input: {}}]\n- {text: done, expect: {last_tool_result: found, messages: 3}}"
    )
    async with speaking(turns) as (server, client):
        first = await client.chat.completions.create(model="any", messages=[HELLO], tools=TOOLS)
        said: Any = first.choices[0].message.model_dump(exclude_none=True)
        result: Any = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": "found it"}
        second = await client.chat.completions.create(
            model="any", messages=[HELLO, said, result], tools=TOOLS
        )
    assert (second.choices[0].message.content, server.turns_done) == ("done", 2)


async def test_the_stream_byte_by_byte():
    """Chunks without names, one with the usage, and the word at the end."""
    async with speaking("- {text: Hi, usage: {input_tokens: 4, output_tokens: 2}}") as (server, _):
        body = {
            "model": "m",
            "messages": [HELLO],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = await anyio.to_thread.run_sync(exchange, server.base_url, PATH, body)
    head = (
        'data: {"id":"chatcmpl-scripted-0001","created":1767225600,"model":"m","service_tier":"default",'
        '"system_fingerprint":"fp_scripted","object":"chat.completion.chunk","usage":'
    )

    def chunk(delta: str, finish: str) -> str:
        choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'
        return f'{head}null,"choices":[{choice}]}}\n\n'

    usage = (
        '{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},'
        '"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":0},"total_tokens":6}'
    )
    assert answer.is_complete
    assert answer.data.decode() == "".join(
        (
            chunk('{"role":"assistant","content":"","refusal":null}', "null"),
            chunk('{"content":"Hi"}', "null"),
            chunk("{}", '"stop"'),
            f'{head}{usage},"choices":[]}}\n\n',
            "data: [DONE]\n\n",
        )
    )


async def test_without_the_option_no_chunk_speaks_of_usage():
    """As the API does it."""
    async with speaking("- text: Hi") as (server, _):
        body = {"model": "m", "messages": [HELLO], "stream": True}
        answer = await anyio.to_thread.run_sync(exchange, server.base_url, PATH, body)
    assert answer.data.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in answer.data


async def test_an_error_in_the_stream_is_raised_by_the_sdk():
    """It comes in place of a chunk."""
    async with speaking("- {text: x, stream_error: {after_events: 1, message: boo}}") as (_, client):
        stream = await client.chat.completions.create(model="any", messages=[HELLO], stream=True)
        await anext(stream)
        with pytest.raises(openai.APIError, match="boo"):
            await anext(stream)


async def test_a_chunk_that_is_not_json_breaks_the_stream():
    """The client finds out, and the turn is given again."""
    async with speaking("- {text: x, malformed: {after_events: 1}}") as (server, client):
        stream = await client.chat.completions.create(model="any", messages=[HELLO], stream=True)
        await anext(stream)
        with pytest.raises(json.JSONDecodeError):
            await anext(stream)
        assert server.turns_done == 0


CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}
REFUSED: dict[str, tuple[object, str]] = {
    "no messages": ({"model": "m"}, "Missing required parameter: 'messages'."),
    "no model": ({"messages": [HELLO]}, "you must provide a model parameter"),
    "a wrong role": ({"model": "m", "messages": [{"role": "me"}]}, "Invalid value for 'messages[0].role'."),
    "a call without its result": (
        {"model": "m", "messages": [HELLO, CALLED, HELLO]},
        "did not have response",
    ),
    "a call at the end": ({"model": "m", "messages": [HELLO, CALLED]}, "did not have response messages: c1"),
    "a result nobody asked for": (
        {"model": "m", "messages": [HELLO, {"role": "tool", "tool_call_id": "c9", "content": "x"}]},
        "must be a response to a preceding message",
    ),
    "no object": ("x", "We could not parse the JSON body"),
}


@pytest.mark.parametrize(("asked", "message"), slow_after(2, REFUSED.values()), ids=REFUSED.keys())
async def test_what_the_api_refuses_is_refused(asked: object, message: str):
    """Mistakes of a client show here, before they cost money."""
    async with speaking("- text: fine") as (server, _):
        answer = await anyio.to_thread.run_sync(exchange, server.base_url, PATH, asked)
    error = json.loads(answer.data)["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert message in error["message"]
