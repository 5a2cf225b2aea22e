import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.cases import slow_after
from tests.model.conftest import KEY, OpenTalk, frames_of, model_of

from ringfence.errors import AuthenticationFailed, InfrastructureFault, UsageError
from ringfence.events import Event, ThinkingStreamed, Usage
from ringfence.model.base import ContextExceeded, ModelRequest
from ringfence.model.failure import RetryPolicy
from ringfence.model.scripted import parse_script
from ringfence.secret import Credential
from ringfence.testing.scripted_model.server import listening, running

HELLO = ModelRequest("m", "", ({"role": "user", "content": "hi"},))
TWO_CALLS = """
- thinking: I should look.
  signature: c2lnbmVk
  text: Let me look.
  tools:
    - {name: shell, input: {command: "ls -la", reasoning: look}}
    - {name: read_file, input: {path: "größe.txt", deep: {a: [1, 2.5, true, null]}}}
"""


async def test_a_reply_keeps_every_block_in_order_and_untouched(talk_over: OpenTalk):
    """Thinking with its signature, text and several tool calls come back as plain JSON, in order."""
    async with talk_over(TWO_CALLS) as talk:
        reply = await talk.ask()
    thinking, text, shell, read = reply.content
    assert thinking == {"type": "thinking", "thinking": "I should look.", "signature": "c2lnbmVk"}
    assert text == {"type": "text", "text": "Let me look."}
    assert (shell["name"], shell["input"]) == ("shell", {"command": "ls -la", "reasoning": "look"})
    assert read["input"] == {"path": "größe.txt", "deep": {"a": [1, 2.5, True, None]}}
    assert reply.stop_reason == "tool_use"


async def test_redacted_thinking_comes_back_as_it_came(talk_over: OpenTalk):
    """A redacted block is passed on byte for byte."""
    async with talk_over("- {redacted_thinking: EmwKAhgB, text: yes}") as talk:
        reply = await talk.ask()
    assert reply.content[0] == {"type": "redacted_thinking", "data": "EmwKAhgB"}


async def test_text_and_thinking_are_told_as_they_come(talk_over: OpenTalk):
    """A live view gets the pieces, and together they are the whole."""
    async with talk_over("- {thinking: abcdef, text: '0123456789', piece_chars: 3}") as talk:
        await talk.ask()
    assert talk.streamed == "0123456789"
    assert [e.text for e in talk.events if isinstance(e, ThinkingStreamed)] == ["abc", "def"]
    assert len(talk.events) == 2 + 4


async def test_usage_is_what_the_api_counted(talk_over: OpenTalk):
    """All four counts of the reply are kept."""
    turn = """
- text: hello
  usage: {input_tokens: 10, output_tokens: 20, cache_creation_input_tokens: 30, cache_read_input_tokens: 40}
"""
    async with talk_over(turn) as talk:
        reply = await talk.ask()
    assert reply.usage == Usage(
        input_tokens=10, output_tokens=20, cache_creation_input_tokens=30, cache_read_input_tokens=40
    )


async def test_a_conversation_goes_on_with_what_was_replied(talk_over: OpenTalk):
    """A reply's content can be sent back as it is, followed by the results."""
    async with talk_over(TWO_CALLS + "- {text: done, expect: {last_tool_result: beta}}") as talk:
        first = await talk.ask()
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": text}
            for block, text in zip(first.content[2:], ("alpha", "beta"), strict=True)
        ]
        second = await talk.ask(
            messages=(
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": list(first.content)},
                {"role": "user", "content": results},
            )
        )
    assert second.content == ({"type": "text", "text": "done"},)
    assert talk.server.requests[1].body["messages"][1]["content"] == list(first.content)


@pytest.mark.parametrize("status", slow_after(4, [408, 409, 429, 500, 502, 503, 504, 529]))
async def test_a_passing_fault_is_tried_again(talk_over: OpenTalk, status: int):
    """Statuses that time mends are retried and announced."""
    async with talk_over(f"- {{error: {{status: {status}}}, text: fine}}") as talk:
        reply = await talk.ask()
    assert reply.content[0]["text"] == "fine"
    assert [(retry.attempt, retry.status) for retry in talk.retries] == [(1, status)]


async def test_each_of_three_overloads_is_announced(talk_over: OpenTalk):
    """529 thrice, then a reply: three retries, with waits that grow."""
    async with talk_over("- {error: {status: 529, message: Overloaded, times: 3}, text: fine}") as talk:
        await talk.ask()
    assert [retry.attempt for retry in talk.retries] == [1, 2, 3]
    assert "overloaded_error: Overloaded" in talk.retries[0].reason
    waits = [retry.wait_s for retry in talk.retries]
    assert waits == pytest.approx([0.00075, 0.0015, 0.003])


async def test_retry_after_is_kept_to(talk_over: OpenTalk):
    """The wait is what the server asks for, not our own."""
    async with talk_over("- {error: {status: 429, retry_after_ms: 20}, text: fine}") as talk:
        began = time.monotonic()
        await talk.ask()
    assert talk.retries[0].wait_s == pytest.approx(0.02)
    assert time.monotonic() - began >= 0.02


async def test_a_retry_after_beyond_the_total_ends_at_once(talk_over: OpenTalk):
    """Nobody waits an hour: the error says when to come back."""
    async with talk_over("- {error: {status: 429, retry_after: 3600}, text: fine}") as talk:
        with pytest.raises(InfrastructureFault, match="try again in 3600 s"):
            await talk.ask()
    assert len(talk.server.requests) == 1


async def test_the_server_can_forbid_a_retry(talk_over: OpenTalk):
    """`x-should-retry: false` is believed."""
    async with talk_over("- {error: {status: 500, headers: {x-should-retry: 'false'}}, text: fine}") as talk:
        with pytest.raises(InfrastructureFault):
            await talk.ask()
    assert len(talk.server.requests) == 1


async def test_attempts_are_bounded(talk_over: OpenTalk):
    """After the last attempt the fault is reported, with the reason."""
    retries = RetryPolicy(attempts=3, backoff_s=0.001)
    async with talk_over("- {error: {status: 529, times: 9}, text: fine}", retries=retries) as talk:
        with pytest.raises(InfrastructureFault, match=r"in 3 attempts .*529 overloaded_error"):
            await talk.ask()
    assert len(talk.server.requests) == 3


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refused_credential_is_not_tried_again(talk_over: OpenTalk, status: int):
    """One request, one clear line, no secret in it."""
    async with talk_over(f"- error: {{status: {status}, message: 'bad {KEY.value}', times: 9}}") as talk:
        with pytest.raises(AuthenticationFailed, match=f"{status} .*provide a valid one") as caught:
            await talk.ask()
    assert len(talk.server.requests) == 1
    assert talk.events == []
    assert KEY.value not in str(caught.value)


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refused_request_is_not_tried_again(talk_over: OpenTalk, status: int):
    """The same request would be refused again."""
    async with talk_over(f"- error: {{status: {status}, message: no such thing, times: 9}}") as talk:
        with pytest.raises(UsageError, match="no such thing") as caught:
            await talk.ask()
    assert len(talk.server.requests) == 1
    assert not isinstance(caught.value, ContextExceeded)


async def test_a_conversation_that_is_too_long_is_told_apart(talk_over: OpenTalk):
    """A caller can shorten it and ask again."""
    message = "prompt is too long: 345320 tokens > 199999 maximum"
    async with talk_over(f"- error: {{status: 400, message: '{message}'}}") as talk:
        with pytest.raises(ContextExceeded, match="345320"):
            await talk.ask()


BREAKS = {
    "dropped in a tool call": "drop: {after_events: 9}",
    "dropped in the middle of a byte sequence": "drop: {after_bytes: 700}",
    "dropped before the first event": "drop: {after_events: 0}",
    "malformed event": "malformed: {after_events: 5}",
    "an event that is a list": 'malformed: {after_events: 5, data: "[]"}',
    "overloaded in the stream": "stream_error: {after_events: 6}",
}


@pytest.mark.parametrize("fault", slow_after(3, BREAKS.values()), ids=BREAKS.keys())
async def test_a_broken_stream_is_repeated_and_its_tool_calls_never_seen(talk_over: OpenTalk, fault: str):
    """The caller gets the reply once, whole, and a retry that voids what was streamed before."""
    turn = f"- text: Let me look.\n  tools: [{{name: shell, input: {{command: rm -r build}}}}]\n  {fault}\n"
    async with talk_over(turn) as talk:
        reply = await talk.ask()
    assert [block["type"] for block in reply.content] == ["text", "tool_use"]
    assert reply.content[1]["input"] == {"command": "rm -r build"}
    assert len(talk.retries) == 1
    assert len(talk.server.requests) == 2
    assert talk.server.turns_done == 1


async def test_an_invalid_request_told_in_the_stream_is_final(talk_over: OpenTalk):
    """An error event is classified by its type like a status."""
    async with talk_over("- {text: x, stream_error: {type: invalid_request_error, message: bad}}") as talk:
        with pytest.raises(UsageError, match="400 invalid_request_error: bad"):
            await talk.ask()
    assert len(talk.server.requests) == 1


async def test_a_stall_ends_at_the_idle_deadline(talk_over: OpenTalk):
    """A stream that says nothing is given up and repeated."""
    retries = RetryPolicy(idle_s=0.05, backoff_s=0.001)
    async with talk_over("- {text: fine, stall: {seconds: 60}}", retries=retries) as talk:
        reply = await talk.ask()
    assert reply.content[0]["text"] == "fine"
    assert talk.retries[0].reason == "the API sent nothing for 0.05 s"


async def test_the_first_event_has_a_deadline_of_its_own(talk_over: OpenTalk):
    """A local server may read a long prompt longer than a stream may be idle."""
    retries = RetryPolicy(first_byte_s=30.0, idle_s=0.5, backoff_s=0.001)
    async with talk_over("- {text: fine, stall: {seconds: 0.7, after_events: 0}}", retries=retries) as talk:
        await talk.ask()
    assert talk.retries == []


async def test_a_reply_that_trickles_for_ever_ends_at_its_deadline(talk_over: OpenTalk):
    """Each event is in time, the whole is not."""
    retries = RetryPolicy(reply_s=0.1, attempts=1)
    turn = "- {text: '0123456789', slow: {chunk_bytes: 1, delay_s: 0.01}}"
    async with talk_over(turn, retries=retries) as talk:
        with pytest.raises(InfrastructureFault, match=r"took longer than 0\.1 s"):
            await talk.ask()


async def test_slow_pieces_cut_anywhere_make_the_same_reply(talk_over: OpenTalk):
    """Chunks end inside of characters, lines and events."""
    text = "日本 é \u2028 x" * 3
    async with talk_over(f"- {{text: {json.dumps(text)}, slow: {{chunk_bytes: 1, delay_s: 0}}}}") as talk:
        reply = await talk.ask()
    assert reply.content[0]["text"] == text
    assert talk.retries == []


async def test_an_unreachable_server_is_an_infrastructure_fault():
    """A refused connection is retried, then reported with the address."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://user:hidden@127.0.0.1:{closed.getsockname()[1]}"
        async with model_of(url, retries=RetryPolicy(attempts=2, backoff_s=0.001)) as model:
            with pytest.raises(
                InfrastructureFault, match=r"http://127\.0\.0\.1:\d+ sent no complete reply in 2 att"
            ) as caught:
                await model.reply(HELLO, _ignore)
    assert "hidden" not in str(caught.value)


async def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    talk_over: OpenTalk, monkeypatch: pytest.MonkeyPatch
):
    """A proxy elsewhere could not reach this machine's loopback."""
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:3128")
    monkeypatch.setenv("ALL_PROXY", "http://192.0.2.1:3128")
    async with talk_over("- text: direct") as talk:
        assert (await talk.ask()).content[0]["text"] == "direct"


HEADERS = [
    (Credential("api_key", "k-1234"), {"x-api-key": "k-1234"}),
    (Credential("bearer", "t-1234"), {"authorization": "Bearer t-1234"}),
    (
        Credential("oauth", "o-1234"),
        {"authorization": "Bearer o-1234", "anthropic-beta": "oauth-2025-04-20"},
    ),
]


@pytest.mark.parametrize(("credential", "expected"), HEADERS, ids=["api_key", "bearer", "oauth"])
async def test_each_kind_of_credential_goes_its_own_way(
    talk_over: OpenTalk,
    monkeypatch: pytest.MonkeyPatch,
    credential: Credential,
    expected: dict[str, str],
):
    """Exactly the headers of its kind are sent, whatever else the environment holds."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "other-key")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other-token")
    async with talk_over("- text: yes", credential=credential) as talk:
        await talk.ask()
    names = ("x-api-key", "authorization", "anthropic-beta")
    sent = talk.server.requests[0].headers
    assert {name: sent[name] for name in names if name in sent} == expected


@asynccontextmanager
async def answering(answer: Callable[[Request], Awaitable[Response]]) -> AsyncIterator[str]:
    """The base URL of a server that answers requests for a reply so."""
    routes = [Route("/v1/messages", answer, methods=["POST"])]
    with listening(0) as listener:
        async with running(Starlette(routes=routes), listener, anyio.Event()):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_a_redirect_does_not_take_the_key_along():
    """A server that points elsewhere is an error at once; the request goes nowhere else."""
    seen: list[str] = []

    async def redirect(request: Request) -> Response:
        seen.append(request.url.path)
        return RedirectResponse("/v1/messages?again")

    async with answering(redirect) as url, model_of(url) as model:
        with pytest.raises(InfrastructureFault, match="307"):
            await model.reply(HELLO, _ignore)
    assert seen == ["/v1/messages"]


async def test_an_answer_that_is_no_stream_is_a_fault():
    """A captive portal's page is not taken for a reply."""

    async def page(request: Request) -> Response:
        return PlainTextResponse("<html>please log in</html>")

    async with answering(page) as url, model_of(url, retries=RetryPolicy(attempts=1)) as model:
        with pytest.raises(InfrastructureFault, match="contains no events of a reply"):
            await model.reply(HELLO, _ignore)


async def test_a_server_that_does_not_hang_up_cannot_hold_a_whole_reply():
    """After `message_stop` nothing more is waited for."""
    turn = parse_script("turns: [{text: whole}]").turns[0]

    async def endless(request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for frame in frames_of(turn):
                yield frame
            await anyio.sleep_forever()

        return StreamingResponse(parts(), media_type="text/event-stream")

    async with answering(endless) as url, model_of(url) as model:
        with anyio.fail_after(10):
            reply = await model.reply(HELLO, _ignore)
    assert reply.content == ({"type": "text", "text": "whole"},)


async def test_a_cancelled_scope_takes_model_and_server_down(talk_over: OpenTalk):
    """Cancelling from outside leaves no connection and no server behind."""
    with anyio.CancelScope() as scope:

        async def cancel(event: Event) -> None:
            scope.cancel()

        async with talk_over("- {text: never, stall: {seconds: 60, after_events: 4}}") as talk:
            port = int(talk.server.base_url.rpartition(":")[2])
            await talk.model.reply(HELLO, cancel)
    assert scope.cancelled_caught
    with pytest.raises(OSError, match="refused|failed"):  # noqa: RUF043  # one of two words
        await anyio.connect_tcp("127.0.0.1", port)


async def test_half_a_surrogate_pair_is_refused(talk_over: OpenTalk):
    """Text that cannot be sent is the caller's fault, not the network's."""
    async with talk_over("- text: yes") as talk:
        with pytest.raises(UsageError, match="not Unicode"):
            await talk.ask("\ud800")


async def test_a_reply_can_be_cancelled_at_once(talk_over: OpenTalk):
    """A caller's deadline is not mistaken for one of ours, and nothing is retried."""
    async with talk_over("- {text: never, stall: {seconds: 60, times: 9}}") as talk:
        with anyio.move_on_after(0.1) as scope:
            await talk.ask()
        assert scope.cancelled_caught
    assert talk.retries == []


async def test_what_emit_raises_is_the_callers(talk_over: OpenTalk):
    """A journal that cannot be written ends the reply; it is no fault of the model."""

    async def full(event: Event) -> None:
        raise TimeoutError("disk")

    async with talk_over("- text: yes") as talk:
        with pytest.raises(TimeoutError, match="disk"):
            await talk.model.reply(HELLO, full)
    assert len(talk.server.requests) == 1


async def _ignore(event: Event) -> None:
    return None
