"""A run's exchanges, served once more from its record."""

from tests.egress.gateway.conftest import (
    MESSAGE,
    OpenGateway,
    Record,
    answer,
    begin,
    end,
    request,
    serving,
    stream,
    text,
    whole,
)

from ringfence.egress.gateway.recorded import RecordedUpstream

NOWHERE = "http://127.0.0.1:1"


async def test_a_recorded_exchange_is_served_again(gateway_at: OpenGateway, record: Record):
    """A stream and a whole answer, byte for byte, without the API."""
    asked = [request({"stream": True}), request()]
    async with serving(stream(begin() + text("hello") + end())) as api, gateway_at(api.url) as gateway:
        before = [await whole(gateway, asked[0])]
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        before.append(await whole(gateway, asked[1]))
    recorded = RecordedUpstream(record.events)
    async with gateway_at(NOWHERE, upstream=lambda: recorded) as gateway:
        after = [await whole(gateway, each) for each in asked]
    assert after == before
    assert (recorded.served, recorded.remaining, recorded.unknown) == (2, (), [])


async def test_each_answer_is_served_once_and_in_order(gateway_at: OpenGateway, record: Record):
    """The same question may have had two answers."""
    for words in ("one", "two"):
        async with serving(stream(begin() + text(words) + end())) as api, gateway_at(api.url) as gateway:
            await whole(gateway, request({"stream": True}))
    recorded = RecordedUpstream(record.events)
    async with gateway_at(NOWHERE, upstream=lambda: recorded) as gateway:
        said = [await whole(gateway, request({"stream": True})) for _ in range(3)]
    assert [b"one" in said[0][1], b"two" in said[1][1]] == [True, True]
    assert said[2][0] == 502
    assert len(recorded.unknown) == 1


async def test_another_question_has_no_answer(gateway_at: OpenGateway, record: Record):
    """And no client asks it again."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        await whole(gateway, request())
    recorded = RecordedUpstream(record.events)
    async with gateway_at(NOWHERE, upstream=lambda: recorded) as gateway:
        got = await gateway.answer(request({"max_tokens": 7}))
    assert got.status == 502
    assert b"no answer to this request" in (got.whole or b"")
    assert got.headers["x-should-retry"] == "false"
    assert len(recorded.remaining) == 1
