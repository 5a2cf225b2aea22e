"""A gateway in front of an API: the credential, what is recorded, bounds, faults."""

import base64
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from anyio.abc import ByteStream
from tests.egress.gateway.conftest import (
    KEY,
    MESSAGE,
    STREAM,
    OpenGateway,
    Record,
    Respond,
    Seen,
    answer,
    begin,
    end,
    event,
    request,
    serving,
    stream,
    text,
    whole,
)

from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.egress.gateway.provider import DUMMY_CREDENTIALS
from ringfence.egress.http.rules import Request
from ringfence.errors import AuthenticationFailed, InfrastructureFault, LimitReached, PolicyRefused
from ringfence.events import Usage
from ringfence.model.prices import Price, PriceList
from ringfence.secret import Credential

# --- the credential


async def test_the_real_key_replaces_whatever_came_from_inside(gateway_at: OpenGateway):
    """No header of a client that could hold a credential gets through."""
    said: dict[str, Any] = {
        "authorization": "Bearer x", "cookie": "a=b", "proxy_authorization": "Basic x", "x_goog_api_key": "x",
        "openai_organization": "org", "x_forwarded_for": "1.1.1.1", "user_agent": "claude-cli/2", "api_key": "x",
    }  # fmt: skip
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        assert (await whole(gateway, request(**said)))[0] == 200
    got = api.seen[0].headers
    assert got["x-api-key"] == KEY
    assert got["user-agent"] == "claude-cli/2"
    assert not {"authorization", "cookie", "proxy-authorization", "x-goog-api-key", "x-forwarded-for"} & set(
        got
    )
    assert not {"openai-organization", "api-key"} & set(got)


@pytest.mark.parametrize(
    ("credential", "headers"),
    [
        (Credential("bearer", "the-token-of-a-gateway"), {"authorization": "Bearer the-token-of-a-gateway"}),
        (
            Credential("oauth", "sk-ant-oat01-the-token"),
            {"authorization": "Bearer sk-ant-oat01-the-token", "anthropic-beta": "oauth-2025-04-20"},
        ),
    ],
    ids=["bearer", "oauth"],
)
async def test_each_kind_of_credential_travels_in_its_own_way(
    gateway_at: OpenGateway, credential: Credential, headers: dict[str, str]
):
    """As the API wants it, whatever the client sent."""
    async with (
        serving(answer(MESSAGE)) as api,
        gateway_at(api.url, credential=credential, providers=["anthropic"]) as gateway,
    ):
        await whole(gateway, request(anthropic_beta="oauth-2025-04-20"))
    got = api.seen[0].headers
    assert {name: got.get(name) for name in headers} == headers
    assert "x-api-key" not in got


async def test_openais_paths_are_below_its_own_base_url(gateway_at: OpenGateway):
    """With a bearer token, as its clients send it."""
    asked = request({"input": "hi"}, path="/v1/responses", authorization="Bearer dummy")
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        await whole(gateway, asked)
    assert api.seen[0].target == "/v1/responses"
    assert api.seen[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "echo",
    [KEY, base64.b64encode(KEY.encode()).decode(), quote(KEY, safe=""), f"Bearer {KEY}\nmore"],
    ids=["plain", "base64", "percent", "in text"],
)
async def test_an_echoed_key_stays_outside(gateway_at: OpenGateway, record: Record, echo: str):
    """Neither who asked nor the record gets it, in a body or in a header."""
    respond = answer({"error": {"message": echo}}, 401, {"request-id": KEY})
    async with serving(respond) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request(), sandbox_id="s")
        body = b"".join([piece async for piece in got.body()]).decode()
    assert got.status == 401
    assert got.headers["request-id"] == "[redacted]"
    for place in (body, repr(record.events)):
        assert KEY not in place
        assert json.dumps(echo)[1:-1] not in place


async def test_a_key_in_a_stream_is_found_also_where_it_is_cut(gateway_at: OpenGateway, record: Record):
    """Pieces of the network have nothing to do with words."""
    data = begin() + text(f"look: {KEY}") + end()
    place = data.index(KEY.encode()) + 7
    async with serving(stream(data[:place], data[place:])) as api, gateway_at(api.url) as gateway:
        _, body = await whole(gateway, request({"stream": True}))
    assert KEY.encode() not in body
    assert b"look: [redacted]" in body
    assert KEY not in repr(record.events)


async def test_a_redirect_is_never_followed(gateway_at: OpenGateway):
    """The credential would go along."""
    async with serving(answer(MESSAGE)) as other:
        respond = answer({}, 307, {"Location": f"{other.url}/v1/messages"})
        async with serving(respond) as api, gateway_at(api.url) as gateway:
            status, body = await whole(gateway, request())
    assert status == 502
    assert b"redirect" in body
    assert other.seen == []


async def test_a_credential_that_is_not_to_be_had_ends_the_run(gateway_at: OpenGateway):
    """Without a request, and with its own words."""

    async def lend() -> Credential:
        raise AuthenticationFailed("the login has ended; log in again")

    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        gateway._providers["anthropic"] = gateway._providers["anthropic"].__class__(
            "anthropic", lend, "api_key", api.url
        )
        status, body = await whole(gateway, request())
        assert isinstance(gateway.stopped, AuthenticationFailed)
    assert status == 403
    assert b"log in again" in body
    assert api.seen == []


def test_dummies_look_like_what_they_stand_for():
    """A client goes by the beginning."""
    assert DUMMY_CREDENTIALS["anthropic", "api_key"][1].startswith("sk-ant-api")
    assert DUMMY_CREDENTIALS["anthropic", "oauth"][1].startswith("sk-ant-oat")


# --- what passes


async def test_an_answer_passes_with_its_limits_and_without_the_rest(gateway_at: OpenGateway):
    """Rate limits are the client's business; cookies are not."""
    headers = {
        "anthropic-ratelimit-requests-remaining": "7", "retry-after": "3", "request-id": "r", "Set-Cookie": "a=b",
        "x-internal": "y",
    }  # fmt: skip
    async with serving(answer(MESSAGE, 429, headers)) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request())
        body = b"".join([piece async for piece in got.body()])
    assert json.loads(body) == MESSAGE
    assert got.status == 429
    assert (got.headers["anthropic-ratelimit-requests-remaining"], got.headers["retry-after"]) == ("7", "3")
    assert not {"set-cookie", "x-internal"} & set(got.headers)


async def test_a_stream_is_passed_on_as_it_comes(gateway_at: OpenGateway):
    """The first event is there before the second one was sent."""
    first_is_there = anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM + begin())
        await first_is_there.wait()
        await wire.send(end())

    async with serving(respond) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request({"stream": True}))
        pieces = []
        async for piece in got.body():
            pieces.append(piece)
            first_is_there.set()
    assert pieces == [begin(), end()]


async def test_what_is_asked_is_written_anew(gateway_at: OpenGateway):
    """The body, too: what is said twice is said once."""
    body = b'{"model": "x", "model": "m", "max_tokens": 5, "messages": [], "mcp_servers": [1]}'
    asked = Request("POST", "/v1/messages", (("anthropic-version", "1"),), body)
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        await whole(gateway, asked)
    assert api.seen[0].body == {"model": "m", "max_tokens": 5, "messages": []}
    assert api.seen[0].headers["content-length"] == str(len(b'{"model":"m","max_tokens":5,"messages":[]}'))


BAD_BODIES = {
    "none": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "no model": b'{"messages": []}',
    "a surrogate": b'{"model": "m", "max_tokens": 1, "messages": ["\\ud800"]}',
    "tokens in words": b'{"model": "m", "max_tokens": "many", "messages": []}',
    "no tokens": b'{"model": "m", "max_tokens": 0, "messages": []}',
    "tools in words": b'{"model": "m", "max_tokens": 1, "tools": "all"}',
}


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_bad_body_is_told_and_not_passed_on(gateway_at: OpenGateway, name: str):
    """In the API's own shape."""
    asked = Request("POST", "/v1/messages", (("anthropic-version", "1"),), BAD_BODIES[name])
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        status, body = await whole(gateway, asked)
    assert status == 400
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
    assert api.seen == []


async def test_a_model_that_is_not_allowed_is_refused(gateway_at: OpenGateway, record: Record):
    """Who asked learns which are."""
    policy = ModelPolicy(models=("claude-haiku-*",))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, policy=policy) as gateway:
        status, body = await whole(gateway, request({"model": "claude-opus-5"}))
    assert status == 403
    assert "allowed: claude-haiku-*" in json.loads(body)["error"]["message"]
    assert api.seen == []
    assert [(each.allowed, each.model) for each in record.asked] == [(False, "")]


async def test_a_provider_without_a_credential_is_refused(gateway_at: OpenGateway):
    """In the words of its own API."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, providers=["anthropic"]) as gateway:
        status, body = await whole(gateway, request({"input": "x"}, path="/v1/responses"))
    assert status == 403
    assert "no credential" in json.loads(body)["error"]["message"]


# --- the record


async def test_an_exchange_is_in_the_record_with_what_was_said(gateway_at: OpenGateway, record: Record):
    """Enough of it to serve it once more."""
    body = begin() + text("hello") + end()
    async with serving(stream(body)) as api, gateway_at(api.url) as gateway:
        await whole(
            gateway, request({"stream": True, "tools": [{"type": "web_search_20250305", "name": "w"}]})
        )
    asked, exchanged = record.asked[0], record.exchanged[0]
    assert (asked.sandbox_id, asked.exchange, asked.model, asked.path) == ("s", 1, "m", "/v1/messages")
    assert asked.stripped == ["tool web_search_20250305"]
    assert json.loads(asked.request or "") == api.seen[0].body
    assert exchanged.answer == body.decode()
    assert (exchanged.status, exchanged.ended_by, exchanged.is_estimated) == (200, "closed", False)
    assert exchanged.usage == Usage(input_tokens=10, output_tokens=5)


async def test_a_request_is_in_the_record_before_its_answer_is_told(gateway_at: OpenGateway, record: Record):
    """And what cannot be written down is not told at all."""

    async def full(event: object) -> None:
        raise InfrastructureFault("no space left on the disk")

    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        gateway._emit = full
        with pytest.raises(InfrastructureFault, match="no space"):
            await gateway.handle(request())
        assert len(record.events) == 0


async def test_the_agents_own_loop_is_recorded_without_bodies(gateway_at: OpenGateway, record: Record):
    """Its conversation is in the record by itself."""
    async with serving(stream(begin() + end())) as api, gateway_at(api.url) as gateway:
        await whole(gateway, request({"stream": True}), sandbox_id="")
    assert record.asked[0].request is None
    assert record.exchanged[0].answer is None
    assert len(record.asked[0].request_digest) == len(record.exchanged[0].answer_digest) == 64


async def test_an_answer_that_nobody_reads_is_let_go_and_counted(gateway_at: OpenGateway, record: Record):
    """By what was told and by what was said so far."""
    closed = anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM + begin(40) + text("x" * 80))
        try:
            await wire.receive()
        except anyio.EndOfStream:
            closed.set()

    async with serving(respond) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request({"stream": True}))
        pieces = got.body()
        await anext(pieces)
        await pieces.aclose()
        await got.aclose()
        await closed.wait()
    assert record.exchanged[0].ended_by == "inside"
    assert record.exchanged[0].is_estimated
    assert record.exchanged[0].usage == Usage(input_tokens=40, output_tokens=20)


# --- bounds


async def test_an_answer_may_have_no_more_than_is_left(gateway_at: OpenGateway):
    """Thinking neither."""
    body = {"max_tokens": 5000, "thinking": {"type": "enabled", "budget_tokens": 4000}}
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=Budget(tokens=1500)) as gateway:
        await whole(gateway, request(body))
        await whole(gateway, request({"input": "x"}, path="/v1/responses"))
        await whole(gateway, request({"n": 3, "max_tokens": None}, path="/v1/chat/completions"))
    messages, responses, chat = (seen.body for seen in api.seen)
    assert messages["max_tokens"] == 1500
    assert messages["thinking"]["budget_tokens"] == 1499
    assert responses["max_output_tokens"] == 1500 - 15
    assert chat["max_completion_tokens"] == (1500 - 30) // 3


OVER = {
    "/v1/messages": (15, 403, "permission_error"),
    "/v1/responses": (20, 429, "insufficient_quota"),  # OpenAI gives no fewer than 16 tokens
    "/v1/chat/completions": (15, 429, "insufficient_quota"),
}


@pytest.mark.parametrize("path", OVER)
async def test_beyond_the_budget_nothing_is_asked(gateway_at: OpenGateway, path: str):
    """A clean error that no client asks again after, and the run is told."""
    tokens, status, kind = OVER[path]
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=Budget(tokens=tokens)) as gateway:
        assert (await whole(gateway, request(path=path)))[0] == 200
        assert gateway.stopped is None
        got = await gateway.handle(request(path=path))
        error = json.loads(got.content or b"")["error"]
        assert isinstance(gateway.stopped, LimitReached)
    assert (got.status, error["type"]) == (status, kind)
    assert "--max-tokens" in error["message"]
    assert got.headers["x-should-retry"] == "false"
    assert len(api.seen) == 1


InsideGateway = Callable[[str, int], AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def inside(gateway_at: OpenGateway) -> InsideGateway:
    """Opens a gateway for an agent inside that has so many turns."""
    return lambda url, turns: gateway_at(url, budget=Budget(turns=turns), agent_is_inside=True)


@pytest.mark.parametrize("path", OVER)
async def test_the_turn_after_the_last_is_refused(inside: InsideGateway, record: Record, path: str):
    """A turn is a request that was answered; the next one is asked of no API, and the run is told."""
    _, status, kind = OVER[path]
    async with serving(answer(MESSAGE)) as api, inside(api.url, 1) as gateway:
        assert (await whole(gateway, request(path=path)))[0] == 200
        got = await gateway.handle(request(path=path), sandbox_id="s")
        assert str(gateway.stopped).startswith("limit 'turns' reached: 1 of 1")
    assert (got.status, json.loads(got.content or b"")["error"]["type"]) == (status, kind)
    assert len(api.seen) == 1
    assert [exchanged.turn for exchanged in record.exchanged] == [1]


@pytest.mark.parametrize(
    "respond",
    [answer({"error": {}}, 500), stream(begin(), text("x")), stream(begin(), event("error", error={}))],
    ids=["error", "broken off", "error in the stream"],
)
async def test_what_is_no_answer_is_no_turn(inside: InsideGateway, respond: Respond):
    """It is asked for again, which must not end the run."""
    async with serving(respond) as api, inside(api.url, 1) as gateway:
        for _ in range(3):
            await whole(gateway, request())
        assert (len(api.seen), gateway.turns, gateway.stopped) == (3, 0, None)


async def test_an_answer_that_is_given_up_inside_is_a_turn(inside: InsideGateway):
    """Else a program that reads all but the end of its answers would have as many as it likes."""
    async with serving(stream(begin(), text("x" * 100_000), end())) as api, inside(api.url, 1) as gateway:
        got = await gateway.handle(request({"stream": True}), sandbox_id="s")
        async with aclosing(got.body()) as pieces:
            await anext(pieces)
        await got.aclose()
        assert gateway.turns == 1
        assert (await gateway.handle(request(), sandbox_id="s")).status == 403


async def test_no_more_turns_are_begun_than_are_left(inside: InsideGateway):
    """Requests beside each other wait until it is known whether a turn is left for them."""
    statuses: list[int] = []
    async with serving(answer(MESSAGE)) as api, inside(api.url, 2) as gateway:

        async def ask() -> None:
            statuses.append((await whole(gateway, request()))[0])

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
    assert (len(api.seen), sorted(statuses)) == (2, [200, 200, 403, 403, 403])


@pytest.mark.parametrize("agent_is_inside", [False, True])
async def test_turns_are_the_agents(gateway_at: OpenGateway, agent_is_inside: bool):
    """What others ask beside the agent's own loop, and what is no request for an answer, are none."""
    counting = request({"messages": []}, path="/v1/messages/count_tokens")
    async with (
        serving(answer(MESSAGE)) as api,
        gateway_at(api.url, budget=Budget(), agent_is_inside=agent_is_inside) as gateway,
    ):
        for sandbox_id in ("", "", "", "s"):
            await gateway.handle(request(), sandbox_id=sandbox_id)
            await gateway.handle(counting, sandbox_id=sandbox_id)
        assert gateway.turns == (1 if agent_is_inside else 3)


async def test_a_limit_on_cost_needs_a_price(gateway_at: OpenGateway):
    """It could not be kept otherwise."""
    budget = Budget(cost_usd=1.0, pricing=PriceList({"m": Price(input=1, output=10)}))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=budget) as gateway:
        assert (await whole(gateway, request()))[0] == 200
        status, body = await whole(gateway, request({"model": "of-tomorrow"}))
    assert status == 403
    assert b"price of 'of-tomorrow' is not known" in body


async def test_the_model_that_answers_is_the_one_that_is_paid(gateway_at: OpenGateway, record: Record):
    """A provider may let another model answer than the one that was asked."""
    prices = {"claude-x": Price(input=0, output=0), "dear": Price(input=1_000_000, output=0)}
    budget = Budget(cost_usd=100.0, pricing=PriceList(prices))
    reply = {**MESSAGE, "model": "dear", "usage": {"input_tokens": 3, "output_tokens": 1}}
    async with serving(answer(reply)) as api, gateway_at(api.url, budget=budget) as gateway:
        assert (await whole(gateway, request({"model": "claude-x"})))[0] == 200
    assert [each.cost_usd for each in record.exchanged] == [3.0]


async def test_a_model_without_a_price_that_answers_ends_the_run(gateway_at: OpenGateway):
    """A limit on cost could not be kept: nothing more is asked."""
    budget = Budget(cost_usd=1.0, pricing=PriceList({"claude-x": Price(input=1, output=10)}))
    reply = {**MESSAGE, "model": "of-tomorrow"}
    async with serving(answer(reply)) as api, gateway_at(api.url, budget=budget) as gateway:
        await whole(gateway, request({"model": "claude-x"}))
        status, body = await whole(gateway, request({"model": "claude-x"}))
    assert status == 403
    assert b"the model 'of-tomorrow' in place of 'claude-x'" in body
    assert isinstance(gateway.stopped, PolicyRefused)
    assert len(api.seen) == 1


COSTLY: dict[str, dict[str, Any]] = {
    "/v1/messages": {"messages": [{"role": "user", "content": "word " * 100_000}]},
    "/v1/responses": {"input": "word " * 100_000},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "word " * 100_000}]},
}


@pytest.mark.parametrize("path", COSTLY)
async def test_a_prompt_that_costs_more_than_is_left_is_not_sent(gateway_at: OpenGateway, path: str):
    """What it takes is known before, and is paid for however short the answer is; smaller ones go on."""
    budget = Budget(cost_usd=0.01, pricing=PriceList({"m": Price(input=1, output=10)}))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=budget) as gateway:
        got = await gateway.handle(request(COSTLY[path], path=path))
        assert isinstance(gateway.stopped, LimitReached)
        assert gateway.stopped.limit == "cost_usd"
    assert got.status in (403, 429)
    assert api.seen == []


async def test_a_picture_is_no_long_prompt(gateway_at: OpenGateway):
    """The bytes of a picture are no tokens: a limit does not count them as text."""
    data = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    content = [{"type": "image", "source": data}, {"type": "text", "text": "what is it?"}]
    budget = Budget(cost_usd=0.02, pricing=PriceList({"m": Price(input=1, output=10)}))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=budget) as gateway:
        status, _ = await whole(gateway, request({"messages": [{"role": "user", "content": content}]}))
    assert status == 200


async def test_thinking_that_does_not_fit_is_named(gateway_at: OpenGateway, record: Record):
    """Thinking that is taken out of a request under a small budget is in the record as such."""
    asked = {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}}
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url, budget=Budget(tokens=500)) as gateway:
        assert (await whole(gateway, request(asked)))[0] == 200
    assert "thinking" not in api.seen[0].body
    assert record.asked[0].stripped == ["thinking"]


STREAMED_ERRORS = {
    "/v1/messages": b'event: error\ndata: {"type": "error", "error": {"type": "permission_error"',
    "/v1/responses": b'event: response.failed\ndata: {"type": "response.failed"',
    "/v1/chat/completions": b'data: {"error": {"message": "ringfence: limit',
}


@pytest.mark.parametrize("path", STREAMED_ERRORS)
async def test_a_stream_is_cut_in_the_middle_when_the_budget_is_used(
    gateway_at: OpenGateway, record: Record, path: str
):
    """With an error in the stream's own words; what follows is neither waited for nor paid for."""
    hung_up = anyio.Event()
    piece = {
        "/v1/messages": text("x" * 40),
        "/v1/responses": event("response.output_text.delta", delta="x" * 40),
        "/v1/chat/completions": b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % (b"x" * 40),
    }[path]

    async def endless(seen: Seen, wire: ByteStream) -> None:
        await wire.send(STREAM)
        try:
            while True:
                await wire.send(piece)
                await anyio.sleep(0.001)
        except (anyio.BrokenResourceError, OSError):
            hung_up.set()

    async with serving(endless) as api, gateway_at(api.url, budget=Budget(tokens=200)) as gateway:
        _, body = await whole(gateway, request({"stream": True}, path=path))
        await hung_up.wait()
        assert isinstance(gateway.stopped, LimitReached)
    assert STREAMED_ERRORS[path] in body
    assert body.count(b"xxxx" * 10) < 40
    assert record.exchanged[0].ended_by == "limit"


# --- faults


async def test_an_api_that_is_down_is_nobodys_fault(gateway_at: OpenGateway, record: Record):
    """An error that clients ask again after, and a count of its own."""
    async with serving(answer(MESSAGE)) as api:
        url = api.url
    async with gateway_at(url) as gateway:
        got = await gateway.handle(request())
        assert gateway.faults == 1
        assert isinstance(gateway.fault, InfrastructureFault)
        assert gateway.stopped is None
    assert got.status == 502
    assert "cannot be reached: Connection refused" in json.loads(got.content or b"")["error"]["message"]
    assert "x-should-retry" not in got.headers
    assert record.asked[0].allowed
    assert record.exchanged[0].fault


async def test_an_answer_makes_a_fault_forgotten(gateway_at: OpenGateway):
    """Only those in a row count."""
    answers = iter([answer({}, 503), answer(MESSAGE)])

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await next(answers)(seen, wire)

    async with serving(respond) as api, gateway_at(api.url) as gateway:
        await whole(gateway, request())
        assert gateway.fault is not None
        await whole(gateway, request())
        assert gateway.fault is None
        assert gateway.faults == 1


async def test_an_api_that_stays_away_ends_the_run(gateway_at: OpenGateway):
    """A client that asks for ever would hold it for ever."""
    async with serving(answer({}, 500)) as api, gateway_at(api.url) as gateway:
        for _ in range(50):
            assert gateway.stopped is None
            await whole(gateway, request())
        assert isinstance(gateway.stopped, InfrastructureFault)
        assert (await whole(gateway, request()))[0] == 503
    assert len(api.seen) == 50


async def test_a_stream_that_breaks_off_is_broken_off(gateway_at: OpenGateway, record: Record):
    """The client sees that it is not whole, and asks again if it will."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def respond(seen: Seen, wire: ByteStream) -> None:
        await wire.send(head + b"%x\r\n%s\r\n" % (len(begin()), begin()))

    async with serving(respond) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request({"stream": True}))
        with pytest.raises(Exception, match="broke off"):
            b"".join([piece async for piece in got.body()])
    assert record.exchanged[0].ended_by == "upstream"
