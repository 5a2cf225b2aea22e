"""Many requests at once, and those that nobody waits for: none of them is a way round the budget."""

import gc
import json
from collections.abc import Iterator

import anyio
import pytest
from anyio.abc import ByteStream
from tests.egress.gateway.conftest import (
    MESSAGE,
    OpenGateway,
    Record,
    Seen,
    answer,
    raw,
    request,
    serving,
    whole,
    wired,
)

from ringfence.egress.gateway import server as serving_inside
from ringfence.egress.gateway.budget import Budget, Reserved
from ringfence.egress.gateway.server import GatewayServer
from ringfence.egress.http.rules import Request
from ringfence.egress.http.server import HttpConnection
from ringfence.events import Usage
from ringfence.model.prices import Price, PriceList

PRICES = PriceList({"m": Price(input=1.0, output=10.0)})
BUDGETS = {
    "tokens": {"tokens": 1000},
    "money": {"cost_usd": 0.01, "pricing": PRICES},
}


@pytest.mark.parametrize("limit", BUDGETS)
async def test_requests_at_once_have_no_more_than_one(gateway_at: OpenGateway, limit: str):
    """Each may have what is left; all of them together, too, also where answers come whole."""
    written = 0

    async def respond(seen: Seen, wire: ByteStream) -> None:
        nonlocal written
        written += seen.body["max_tokens"]
        usage = {"input_tokens": 1, "output_tokens": seen.body["max_tokens"]}
        await answer({**MESSAGE, "usage": usage})(seen, wire)

    budget = Budget(**BUDGETS[limit])  # type: ignore[arg-type]  # of two kinds
    async with (
        serving(respond) as api,
        gateway_at(api.url, budget=budget) as gateway,
        anyio.create_task_group() as tasks,
    ):
        for _ in range(20):
            tasks.start_soon(whole, gateway, request({"max_tokens": 5000}))
    assert 0 < written <= 1000


async def test_who_waits_for_room_goes_when_his_client_goes(gateway_at: OpenGateway):
    """And the next one has his place."""
    begun, go = anyio.Event(), anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        begun.set()
        await go.wait()
        await answer(MESSAGE)(seen, wire)

    async with (
        serving(respond) as api,
        gateway_at(api.url, budget=Budget(tokens=200)) as gateway,
        wired(gateway) as first,
        wired(gateway) as second,
        wired(gateway) as third,
    ):
        await first.stream.send(raw(request()))
        await begun.wait()
        await second.stream.send(raw(request({"max_tokens": 150})))
        await anyio.wait_all_tasks_blocked()
        await third.stream.send(raw(request({"model": "third"})))
        await second.stream.aclose()
        go.set()
        assert (await first.answer())[0] == (await third.answer())[0] == 200
    assert [seen.body["model"] for seen in api.seen] == ["m", "third"]


def test_what_is_held_is_free_at_the_end_and_as_it_is_used():
    """Nothing is counted twice."""
    budget = Budget(tokens=100)
    charge = budget.reserve("m", Usage(output_tokens=60))
    with pytest.raises(Reserved):
        budget.check_free("m", Usage(output_tokens=50))
    charge.update(Usage(output_tokens=30))
    budget.check_free("m", Usage(output_tokens=40))
    charge.end()
    charge.end()
    budget.check_free("m", Usage(output_tokens=70))
    budget.reserve("m", Usage(output_tokens=60))
    budget.check_free("m", Usage(output_tokens=10))


async def test_an_answer_that_nobody_waited_for_is_counted_and_recorded(
    gateway_at: OpenGateway, record: Record
):
    """The API has read the prompt, and may have written: who hangs up early asks for nothing for free."""
    begun = anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        begun.set()
        await anyio.sleep_forever()

    budget = Budget(tokens=5000)
    async with (
        serving(respond) as api,
        gateway_at(api.url, budget=budget) as gateway,
        wired(gateway) as wire,
    ):
        await wire.stream.send(raw(request({"messages": [{"role": "user", "content": "x" * 40_000}]})))
        await begun.wait()
        await wire.stream.aclose()
        exchanged = (await record.has_exchanged())[0]
        assert (await whole(gateway, request()))[0] == 403
    assert exchanged.ended_by == "inside"
    assert exchanged.is_estimated
    assert exchanged.usage.input_tokens >= 10_000


@pytest.mark.parametrize("unit", ["[],", '{"a":0},', "0,", '"ab",'])
async def test_a_body_of_very_many_parts_is_refused_unread(gateway_at: OpenGateway, unit: str):
    """In memory each part takes many times what it takes on the wire, and reading them holds everybody up."""
    body = f'{{"model":"m","max_tokens":1,"messages":[{unit * 1_100_000}0]}}'.encode()
    asked = Request("POST", "/v1/messages", (("anthropic-version", "1"),), body)
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        status, told = await whole(gateway, asked)
    assert status == 413
    assert "parts" in json.loads(told)["error"]["message"]
    assert api.seen == []


@pytest.mark.parametrize("value", [1, "true", [True]])
async def test_a_stream_that_is_not_asked_for_by_true_is_refused(gateway_at: OpenGateway, value: object):
    """A lenient server would begin one that is not told to count."""
    asked = request({"stream": value}, path="/v1/chat/completions")
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        assert (await whole(gateway, asked))[0] == 400
    assert api.seen == []


async def test_bodies_at_once_have_one_bound(gateway_at: OpenGateway, monkeypatch: pytest.MonkeyPatch):
    """However many connections there are; who comes later is told to come again, and then can."""
    monkeypatch.setattr(serving_inside, "_ALL_BODIES_BYTES", 100_000)
    large = raw(request({"messages": [{"role": "user", "content": "x" * 60_000}]}))
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        door = GatewayServer(gateway, "s")
        async with (
            wired(gateway, door) as first,
            wired(gateway, door) as second,
            wired(gateway, door) as third,
        ):
            await first.stream.send(large[:-1])
            await anyio.wait_all_tasks_blocked()
            status, _, told = await second.ask(large)
            assert (await first.ask(large[-1:]))[0] == 200
            await anyio.wait_all_tasks_blocked()
            assert (status, (await third.ask(large))[0]) == (503, 200)
    assert b"try again" in told
    assert len(api.seen) == 2


async def test_no_loop_inside_fills_the_disk_with_bodies(gateway_at: OpenGateway, record: Record):
    """Beyond a bound the record has their hashes."""
    async with serving(answer(MESSAGE)) as api, gateway_at(api.url) as gateway:
        gateway._quotas.recorded.left = 1000
        for _ in range(20):
            await whole(gateway, request())
    kept = [text for each in record.asked for text in [each.request] if text is not None]
    kept += [text for each in record.exchanged for text in [each.answer] if text is not None]
    assert 500 < sum(len(text) for text in kept) <= 1000
    assert all(each.request_digest for each in record.asked)
    assert all(each.answer_digest for each in record.exchanged)


async def test_answers_at_once_have_one_bound(gateway_at: OpenGateway):
    """However large an API's are."""
    async with serving(answer({**MESSAGE, "more": "x" * 60_000})) as api, gateway_at(api.url) as gateway:
        gateway._quotas.whole.left = 50_000
        status, told = await whole(gateway, request())
    assert status == 502
    assert b"at once" in told


async def test_a_connection_that_waits_holds_no_request(gateway_at: OpenGateway):
    """What was answered is let go of at once: hundreds of connections that wait would each hold a whole body."""
    async with (
        serving(answer(MESSAGE)) as api,
        gateway_at(api.url) as gateway,
        wired(gateway) as client,
    ):
        status, headers, _ = await client.ask(raw(request()))
        assert (status, "connection" in headers) == (200, False)
        await anyio.wait_all_tasks_blocked()
        gc.collect()
        assert not [each for each in gc.get_objects() if type(each) is Request and each.body]


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Python does not look for what nobody can reach."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("is_whole", [True, False], ids=["answering", "reading"])
async def test_who_hangs_up_leaves_nothing(gateway_at: OpenGateway, *, is_whole: bool):
    """What was read of a request is let go of with its connection, not when Python happens to look for it."""
    begun, over = anyio.Event(), anyio.Event()

    async def respond(seen: Seen, wire: ByteStream) -> None:
        begun.set()
        await anyio.sleep_forever()

    class Watched(GatewayServer):
        async def serve(self, inside: ByteStream) -> None:
            try:
                await super().serve(inside)
            finally:
                over.set()

    async with serving(respond) as api, gateway_at(api.url) as gateway:
        async with wired(gateway, Watched(gateway, "s")) as client:
            data = raw(request())
            await client.stream.send(data if is_whole else data[:-1])
            if is_whole:
                await begun.wait()
            await client.stream.aclose()
            await over.wait()
        await anyio.wait_all_tasks_blocked()
        assert not [each for each in gc.get_objects() if type(each) in (Request, HttpConnection)]
