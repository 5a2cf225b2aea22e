from typing import Any

import pytest

from ringfence.errors import Diverged
from ringfence.model.base import ContextExceeded
from ringfence.runtime import Limits, RecordedModel, Task
from ringfence.runtime.volatile import masked
from ringfence.tool import FunctionTool, tool

pytestmark = pytest.mark.anyio
Bench = Any
Make = Any


def saying(*texts: str) -> FunctionTool:
    """A tool whose results are these, one after the other."""
    left = list(texts)

    @tool(name="say")
    async def function(text: str) -> str:
        """Say it."""
        return left.pop(0)

    return function


async def record(bench: Bench, *answers: Any, **more: Any) -> list[Any]:
    """The events of a run."""
    bench.events = []
    await bench.run(*answers, **more)
    return list(bench.events)


async def test_the_same_run_goes_the_same_way(bench: Bench, make_reply: Make, make_use: Make) -> None:
    """Real commands run again, and the replies come from the record."""
    answers = [
        make_reply("First", make_use("shell", command="echo a > f; ls", reasoning="r")),
        make_reply(make_use("shell", command="cat f; nonsense", reasoning="r")),
        make_reply("Done."),
    ]
    recorded = RecordedModel(await record(bench, *answers))
    result = await bench.run(model=recorded)
    assert (result.final_text, recorded.remaining, recorded.tolerated) == ("Done.", 0, [])


async def test_text_is_streamed_as_from_a_model(bench: Bench, make_reply: Make) -> None:
    """So that a replay can be watched."""
    recorded = RecordedModel(await record(bench, make_reply("Done.")))
    bench.events = []
    await bench.run(model=recorded)
    assert "text.streamed" in bench.names


async def test_another_result_is_told_with_the_call_and_the_line(
    bench: Bench, make_reply: Make, make_use: Make
) -> None:
    """Where to look."""
    answers = [make_reply(make_use("say", "c7", text="x")), make_reply("Done.")]
    recorded = RecordedModel(await record(bench, *answers, functions=[saying("one\ntwo")]))
    with pytest.raises(Diverged) as caught:
        await bench.run(model=recorded, functions=[saying("one\nthree")])
    assert caught.value.turn == 2
    assert caught.value.what.startswith("the result of call c7 (say ")
    assert caught.value.what.endswith("differs: line 2 was 'two', now is 'three'")


async def test_a_result_that_is_an_error_now_is_a_divergence(
    bench: Bench, make_reply: Make, make_use: Make
) -> None:
    """Though its text may be the same."""
    answers = [make_reply(make_use("say", text="x")), make_reply("Done.")]
    recorded = RecordedModel(await record(bench, *answers, functions=[saying("x")]))
    with pytest.raises(Diverged, match="the result of call c1"):
        await bench.run(model=recorded, functions=[saying()])


async def test_another_prompt_is_a_divergence_at_once(bench: Bench, make_reply: Make) -> None:
    """At the first turn."""
    recorded = RecordedModel(await record(bench, make_reply("Done.")))
    with pytest.raises(Diverged, match=r"at turn 1: message 1 .*'do it', now is 'do that'"):
        await bench.run(model=recorded, task=Task(prompt="do that", model="fake", toolset="operator"))


async def test_another_system_prompt_is_a_divergence(bench: Bench, make_reply: Make) -> None:
    """Though no message differs."""
    recorded = RecordedModel(await record(bench, make_reply("Done.")))
    task = Task(prompt="do it", model="fake", toolset="operator", system="other")
    with pytest.raises(Diverged, match="the system prompt, the tools or the limits are not"):
        await bench.run(model=recorded, task=task)


@pytest.mark.parametrize("is_exact", [False, True])
async def test_durations_in_output_are_passed_over_unless_asked(
    bench: Bench, make_reply: Make, make_use: Make, is_exact: bool
) -> None:
    """`1 passed in 0.02s` is no difference in what was done."""
    answers = [make_reply(make_use("say", text="x")), make_reply("Done.")]
    events = await record(bench, *answers, functions=[saying("=== 1 passed in 0.02s ===")])
    recorded = RecordedModel(events, is_exact=is_exact)
    if is_exact:
        with pytest.raises(Diverged):
            await bench.run(model=recorded, functions=[saying("== 1 passed in 13.37s ===")])
    else:
        await bench.run(model=recorded, functions=[saying("==== 1 passed in 13.37s ===")])
        assert len(recorded.tolerated) == 1


async def test_a_record_that_is_over_is_a_divergence(bench: Bench, make_reply: Make, make_use: Make) -> None:
    """The run was killed there."""
    events = await record(
        bench, make_reply(make_use("say", text="x")), make_reply("Done."), functions=[saying("x")]
    )
    recorded = RecordedModel(events[:-1])
    with pytest.raises(Diverged, match="ends after 1 requests"):
        await bench.run(model=recorded, functions=[saying("x")])


@pytest.mark.parametrize("by_error", [True, False], ids=["error", "stop reason"])
async def test_compaction_happens_again_at_its_place(
    bench: Bench, make_reply: Make, make_use: Make, by_error: bool
) -> None:
    """Also where the model refused the request, which left no reply."""
    full = ContextExceeded("too long") if by_error else make_reply("x", stop="model_context_window_exceeded")
    answers = [*[make_reply(make_use("say", f"c{n}", text="x")) for n in range(3)], full, make_reply("Done.")]
    recorded = RecordedModel(await record(bench, *answers, functions=[saying("a", "b", "c")]))
    bench.events = []
    await bench.run(model=recorded, functions=[saying("a", "b", "c")])
    assert recorded.remaining == 0
    assert "conversation.compacted" in bench.names


async def test_cut_and_paused_replies_are_replayed(bench: Bench, make_reply: Make) -> None:
    """With the same room as recorded."""
    answers = [
        make_reply("a", stop="max_tokens"),
        make_reply("ab", stop="pause_turn"),
        make_reply("c"),
    ]
    recorded = RecordedModel(await record(bench, *answers, limits=Limits(tokens=5000)))
    result = await bench.run(model=recorded, limits=Limits(tokens=5000))
    assert (result.ended_by, recorded.remaining) == ("done", 0)


async def test_a_run_that_continued_another_is_replayed_from_its_conversation(
    bench: Bench, make_reply: Make
) -> None:
    """Which the record of the earlier run holds."""
    old = (
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
    )
    task = Task(prompt="c", model="fake", toolset="operator", conversation=old)
    events = await record(bench, make_reply("Done."), task=task)
    recorded = RecordedModel(events, conversation=old)
    assert (await bench.run(model=recorded, task=task)).final_text == "Done."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("in 0.02s", "in 1.5s"),
        ("took 3 ms", "took 4 ms"),
        ("at 2026-01-01T10:00:00Z", "at 2026-02-02 11:11:11+01:00"),
        ("12:00:01", "13:00:01.5"),
        ("<f at 0x7f00aa00bb>", "<f at 0x7f11aa00bb>"),
        ("/tmp/tmpabc12345/x", "/tmp/tmpxyz98765/x"),
        ("pid 12", "pid 345"),
        (r'{"stdout": "\n0.1s\n"}', r'{"stdout": "\n22.3s\n"}'),
        ("real\t0m0.1s", "real\t1m2.0s"),
    ],
)
def test_what_is_volatile(one: str, other: str) -> None:
    """Differences that say nothing about what was done."""
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1 passed", "2 passed"), ("x = 3", "x = 4"), ("exit 0x1", "exit 0x2")]
)
def test_what_is_not_volatile(one: str, other: str) -> None:
    """Numbers are what most differences are about."""
    assert masked(one) != masked(other)
