import json
from typing import Any

import anyio
import pytest

from ringfence.errors import AuthenticationFailed, InfrastructureFault, LimitReached, PolicyRefused
from ringfence.events import ConversationCompacted, MessageSent, ModelReplied, ToolReturned, Usage
from ringfence.model.base import ContextExceeded
from ringfence.model.prices import Price
from ringfence.runtime import Limits, Task
from ringfence.runtime.conversation import CLEARED

pytestmark = pytest.mark.anyio
Bench = Any
Make = Any


async def test_a_whole_run(bench: Bench, make_reply: Make, make_use: Make) -> None:
    """Prompt, a command, its result, the end; the events tell all of it in order."""
    result = await bench.run(
        make_reply("Let me look.", make_use("shell", command="echo hi", reasoning="to see")),
        make_reply("Done."),
    )
    assert (result.ended_by, result.final_text, result.turns) == ("done", "Done.", 2)
    assert result.usage == Usage(input_tokens=20, output_tokens=10)
    assert bench.names == [
        *("message.sent", "model.replied", "tool.called", "output.streamed", "tool.returned"),
        *("message.sent", "model.replied"),
    ]
    answer = bench.model.requests[1].messages[-1]["content"][0]
    assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "c1")
    assert json.loads(answer["content"])["stdout"] == "hi\n"


async def test_the_reply_is_recorded_with_the_digest_of_its_request(bench: Bench, make_reply: Make) -> None:
    """It says which request the reply answers."""
    await bench.run(make_reply("Done."))
    assert bench.of(ModelReplied)[0].request_digest == bench.model.requests[0].digest()


async def test_the_system_prompt_is_the_tasks(bench: Bench, make_reply: Make) -> None:
    """It is sent unchanged."""
    await bench.run(make_reply("Done."), task=Task(prompt="p", model="m", system="mine"))
    assert bench.model.requests[0].system == "mine"


async def test_several_calls_are_answered_in_one_message_in_order(
    bench: Bench, make_reply: Make, make_use: Make, say: Any
) -> None:
    """The API asks for all results of a turn at once."""
    calls = [make_use("say", f"c{n}", text=str(n)) for n in range(3)]
    await bench.run(make_reply(*calls), make_reply("Done."), functions=[say])
    results = bench.model.requests[1].messages[-1]["content"]
    assert [(block["tool_use_id"], block["content"]) for block in results] == [
        ("c0", "0"),
        ("c1", "1"),
        ("c2", "2"),
    ]


async def test_a_failed_call_is_told_as_an_error(bench: Bench, make_reply: Make, make_use: Make) -> None:
    """And the run goes on."""
    result = await bench.run(make_reply(make_use("nothing")), make_reply("Done."))
    assert bench.model.requests[1].messages[-1]["content"][0]["is_error"] is True
    assert result.ended_by == "done"


async def test_a_stop_sequence_is_an_end(bench: Bench, make_reply: Make) -> None:
    """As the end of a turn."""
    assert (await bench.run(make_reply("Done", stop="stop_sequence"))).ended_by == "done"


async def test_an_empty_reply_is_an_end(bench: Bench, make_reply: Make) -> None:
    """And it is not sent back: the API refuses empty messages."""
    result = await bench.run(make_reply(stop="end_turn"))
    assert (result.ended_by, result.final_text) == ("done", "")
    assert [message["role"] for message in result.conversation] == ["user"]


async def test_a_cut_reply_is_asked_for_again_with_more_room(
    bench: Bench, make_reply: Make, make_use: Make
) -> None:
    """Its tool call, which may be half a one, is not made."""
    cut = make_reply("I will", make_use("shell", command="rm -rf", reasoning="cut"), stop="max_tokens")
    result = await bench.run(cut, make_reply("Done."), max_tokens=1000)
    assert [request.max_tokens for request in bench.model.requests] == [1000, 2000]
    assert bench.model.requests[0].messages == bench.model.requests[1].messages
    assert result.ended_by == "done"
    assert bench.of(ToolReturned) == []


async def test_a_reply_that_is_cut_twice_is_a_clear_end(bench: Bench, make_reply: Make) -> None:
    """With what it said."""
    result = await bench.run(make_reply("a", stop="max_tokens"), make_reply("ab", stop="max_tokens"))
    assert (result.ended_by, result.final_text) == ("max_tokens", "ab")


async def test_room_is_raised_again_after_a_turn_that_was_whole(
    bench: Bench, make_reply: Make, make_use: Make, say: Any
) -> None:
    """Once for each reply, not once for the run."""
    cut, whole = make_reply("a", stop="max_tokens"), make_reply(make_use("say", text="x"))
    await bench.run(cut, whole, cut, make_reply("Done."), functions=[say], max_tokens=10)
    assert [request.max_tokens for request in bench.model.requests] == [10, 20, 10, 20]


async def test_a_paused_turn_is_sent_again(bench: Bench, make_reply: Make) -> None:
    """With what came so far, and what comes is added to it."""
    result = await bench.run(make_reply("first ", stop="pause_turn"), make_reply("second"))
    assert bench.model.requests[1].messages[-1] == {
        "role": "assistant",
        "content": [{"type": "text", "text": "first "}],
    }
    assert [message["role"] for message in result.conversation] == ["user", "assistant"]


async def test_pausing_for_ever_is_a_fault(bench: Bench, make_reply: Make) -> None:
    """Bounded like everything."""
    with pytest.raises(InfrastructureFault, match="21 times in a row"):
        await bench.run(*[make_reply("x", stop="pause_turn")] * 30)


async def test_a_refusal_ends_the_run(bench: Bench, make_reply: Make) -> None:
    """And is taken out of the conversation, or the next prompt would be refused too."""
    result = await bench.run(make_reply("I cannot", stop="refusal"))
    assert (result.ended_by, result.final_text) == ("refused", "I cannot")
    assert len(result.conversation) == 1


async def test_an_unknown_stop_reason_is_a_fault_that_names_it(bench: Bench, make_reply: Make) -> None:
    """Never taken for an end."""
    with pytest.raises(InfrastructureFault, match="'new_reason'"):
        await bench.run(make_reply("x", stop="new_reason"))


@pytest.mark.parametrize("blocks", [(), ({"type": "tool_use", "id": "c1"},)], ids=["no call", "half a call"])
async def test_tool_use_without_a_call_is_a_fault(bench: Bench, make_reply: Make, blocks: Any) -> None:
    """The model's server is broken."""
    with pytest.raises(InfrastructureFault, match="called"):
        await bench.run(make_reply("x", *blocks, stop="tool_use"))


@pytest.mark.parametrize("by_error", [True, False], ids=["error", "stop reason"])
async def test_a_full_window_is_emptied_of_old_results(
    bench: Bench, make_reply: Make, make_use: Make, say: Any, by_error: bool
) -> None:
    """The older half of the results is cleared and the request made again."""
    full = ContextExceeded("too long") if by_error else make_reply("x", stop="model_context_window_exceeded")
    turns = [make_reply(make_use("say", f"c{n}", text=f"result {n}")) for n in range(3)]
    result = await bench.run(*turns, full, make_reply("Done."), functions=[say])
    contents = [
        block["content"]
        for message in bench.model.requests[-1].messages
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    assert contents == [CLEARED, "result 1", "result 2"]
    assert bench.of(ConversationCompacted)[0].dropped_results == 1
    assert result.ended_by == "done"


async def test_a_window_that_stays_full_is_a_clear_end(
    bench: Bench, make_reply: Make, make_use: Make, say: Any
) -> None:
    """When nothing is left to clear."""
    turns = [make_reply(make_use("say", f"c{n}", text="x")) for n in range(4)]
    result = await bench.run(*turns, *[ContextExceeded("too long")] * 10, functions=[say])
    assert result.ended_by == "context"
    assert sum(event.dropped_results for event in bench.of(ConversationCompacted)) == 4


async def test_errors_of_the_model_go_through(bench: Bench) -> None:
    """As themselves."""
    with pytest.raises(AuthenticationFailed, match="bad key"):
        await bench.run(AuthenticationFailed("bad key"))


async def test_a_conversation_is_gone_on_with(bench: Bench, make_reply: Make) -> None:
    """The new prompt comes after the old messages, and only it is sent."""
    old = (
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
    )
    task = Task(prompt="now", model="fake", conversation=old)
    await bench.run(make_reply("Done."), task=task)
    assert bench.model.requests[0].messages == (*old, {"role": "user", "content": "now"})
    assert bench.of(MessageSent) == [MessageSent(content="now")]


async def test_half_a_surrogate_pair_in_a_reply_is_mended(
    bench: Bench, make_reply: Make, make_use: Make, say: Any
) -> None:
    """JSON can spell it, no journal can hold it."""
    await bench.run(make_reply(make_use("say", text="a\ud83db")), make_reply("Done."), functions=[say])
    assert bench.of(ToolReturned)[0].content == "a\ufffdb"


async def test_a_cancelled_run_ends_its_call_in_the_record(
    bench: Bench, make_reply: Make, make_use: Make
) -> None:
    """In the middle of a command."""
    sleeping = make_reply(make_use("shell", command="touch began; sleep 1000", reasoning="test"))
    async with anyio.create_task_group() as group:
        group.start_soon(bench.run, sleeping)
        began = ["sh", "-c", "until [ -e began ]; do sleep 0.01; done"]
        assert (await bench.sandbox.run(began, timeout_s=20)).ok
        group.cancel_scope.cancel()
    assert bench.names[-1] == "tool.returned"
    assert bench.events[-1].content.startswith("cancelled")


async def test_a_cancelled_request_leaves_nothing_half(bench: Bench) -> None:
    """The prompt was sent, no reply is recorded."""
    waiting = anyio.Event()

    class Waiting:
        async def reply(self, request: Any, emit: Any) -> Any:
            waiting.set()
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:

        async def run() -> None:
            await bench.run(model=Waiting())

        group.start_soon(run)
        await waiting.wait()
        group.cancel_scope.cancel()
    assert bench.names == ["message.sent"]


@pytest.mark.parametrize(
    ("limits", "limit", "requests", "calls"),
    [
        (Limits(turns=2), "turns", 2, 2),
        (Limits(tool_calls=1), "tool_calls", 2, 1),
        (Limits(tool_calls=0), "tool_calls", 1, 0),
        (Limits(tokens=40), "tokens", 3, 3),
        (Limits(cost_usd=0.0004), "cost_usd", 3, 3),
    ],
    ids=["turns", "tool calls", "no tool calls", "tokens", "cost"],
)
async def test_each_limit_ends_the_run_before_the_next_act(
    bench: Bench,
    make_reply: Make,
    make_use: Make,
    say: Any,
    limits: Limits,
    limit: str,
    requests: int,
    calls: int,
) -> None:
    """No request and no call is made beyond it."""
    turns = [make_reply(make_use("say", f"c{n}", text="x")) for n in range(10)]
    with pytest.raises(LimitReached) as caught:
        await bench.run(
            *turns, functions=[say], limits=limits, prices={"fake": Price(input=5.0, output=20.0)}
        )
    assert caught.value.limit == limit
    assert len(bench.model.requests) == requests
    assert len(bench.of(ToolReturned)) == calls
    assert bench.runtime.meter.turns == requests


async def test_a_turn_with_too_many_calls_has_the_first_of_them_made(
    bench: Bench, make_reply: Make, make_use: Make, say: Any
) -> None:
    """Exactly as many as the limit leaves."""
    with pytest.raises(LimitReached):
        await bench.run(
            make_reply(*[make_use("say", f"c{n}", text="x") for n in range(5)]),
            functions=[say],
            limits=Limits(tool_calls=3),
        )
    assert [event.call_id for event in bench.of(ToolReturned)] == ["c0", "c1", "c2"]


async def test_max_tokens_never_exceeds_what_is_left(bench: Bench, make_reply: Make) -> None:
    """Of the tokens."""
    await bench.run(make_reply("Done."), limits=Limits(tokens=300))
    assert bench.model.requests[0].max_tokens == 300


async def test_a_cost_limit_without_a_price_is_refused_before_the_first_request(
    bench: Bench, make_reply: Make
) -> None:
    """Rather than guessed."""
    with pytest.raises(PolicyRefused, match="'fake'"):
        await bench.run(make_reply("Done."), limits=Limits(cost_usd=1.0))
    assert bench.events == []


async def test_an_unknown_price_is_no_price(bench: Bench, make_reply: Make) -> None:
    """Neither 0 nor a guess."""
    assert (await bench.run(make_reply("Done."))).cost_usd is None
    assert bench.of(ModelReplied)[0].cost_usd is None


async def test_a_known_price_is_added_up(bench: Bench, make_reply: Make) -> None:
    """For each reply and for the run."""
    result = await bench.run(make_reply("Done."), prices={"fake": Price(input=1.0, output=2.0)})
    assert result.cost_usd == pytest.approx(20e-6)
