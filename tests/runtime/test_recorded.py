import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import slow_after

from ringfence.errors import Diverged
from ringfence.model.base import ContextExceeded
from ringfence.runtime import Limits, RecordedModel, Task
from ringfence.runtime.recorded import RecordOver
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


@pytest.mark.parametrize("other", ["x", "y"])
async def test_a_record_that_is_over_is_no_divergence(
    bench: Bench, make_reply: Make, make_use: Make, other: str
) -> None:
    """The run was stopped there; what was recorded until then is compared all the same."""
    events = await record(
        bench, make_reply(make_use("say", text="x")), make_reply("Done."), functions=[saying("x")]
    )
    recorded = RecordedModel(events[:-1])
    expected = pytest.raises(RecordOver) if other == "x" else pytest.raises(Diverged, match="at turn 2")
    with expected:
        await bench.run(model=recorded, functions=[saying(other)])


async def test_a_shells_result_is_told_by_field_and_line(
    bench: Bench, make_reply: Make, make_use: Make
) -> None:
    """Not as half a line of JSON; what is volatile before it is not what is told."""
    one = '{"stdout": "in 0.1s\\nok\\nred\\n", "exit_code": 0}'
    answers = [make_reply(make_use("say", text="x")), make_reply("Done.")]
    recorded = RecordedModel(await record(bench, *answers, functions=[saying(one)]))
    with pytest.raises(Diverged) as caught:
        await bench.run(
            model=recorded, functions=[saying(one.replace("red", "blue").replace("0.1s", "0.2s"))]
        )
    assert caught.value.what.endswith("differs: stdout: line 3 was 'red', now is 'blue'")


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
        ("real 0.01", "real 12.50"),
        (
            "total 4\ndrwx------ 3 1000 1000   60 Nov 21 17:41 .\n-rw-rw-r-- 1 1000 1000    5 Nov 21 17:41 f",
            "total 12\ndrwxr-xr-x 1 1000 1000 4096 Jan  2  2025 .\n-rw-r--r-- 1 1000 1000 5 Nov 22 07:00 f",
        ),
        (
            "-rw-r--r-- 1 me me 5 2026-11-21 17:41:46.123456789 +0000 f",
            "-rw-r--r-- 1 me me 5 2026-11-22 07:01:46.987654321 +0100 f",
        ),
        ("Sat Nov 21 17:41:46 UTC 2026", "Sun Nov  1 05:01:06 UTC 2026"),
        ("Sat 21 Nov 2026 05:41:46 PM UTC", "Sun  1 Nov 2026 05:01:06 AM CET"),
        ("Sat, 21 Nov 2026 17:41:46 +0000", "Sun, 22 Nov 2026 07:41:46 +0100"),
        ("Date:   Sat Nov 21 17:41:46 2026 +0000", "Date:   Sun Nov 22 07:41:46 2026 +0100"),
        ("today is 2026-11-21", "today is 2026-11-22"),
        ("    3 ?        00:00:00 sh", "   14 ?        00:00:01 sh"),
        (
            "u   3  0.0  0.1  2576  900 ?   S   17:41   0:00 sh",
            "u  14  1.0  0.1  2580  904 ?  S  07:00   0:01 sh",
        ),
        ("sh: line 1:    12 Killed   x", "sh: line 1:     7 Killed   x"),
        ("/tmp/tmp.abcDEF1234/x", "/tmp/tmp.ghiJKL5678/x"),
        ("/scratch/tmpabc_1234", "/scratch/tmpxyz98765"),
        ("[main 1a2b3c4] first", "[main 5d6e7f8] first"),
        ("1m2.5s", "3m4s"),
        ('"duration": 0.0123', '"duration": 1.5'),
    ],
)
def test_what_is_volatile(one: str, other: str) -> None:
    """Differences that say nothing about what was done."""
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1 passed", "2 passed"),
        ("x = 3", "x = 4"),
        ("exit 0x1", "exit 0x2"),
        ("booked 09:00-10:00", "booked 09:00-11:00"),
        ("total 3", "total 4"),
        ("-rw-r--r-- 1 me me 5 Nov 21 17:41 f", "-rw-r--r-- 1 me me 6 Nov 21 17:41 f"),
        ("-rw-r--r-- 1 me me 5 Nov 21 17:41 f", "-rwxr-xr-x 1 me me 5 Nov 21 17:41 f"),
        ("drwxr-xr-x 1 me me 5 Nov 21 17:41 f", "drwxr-xr-x 1 me me 5 Nov 21 17:41 g"),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", "da39a3ee5e6b4b0d3255bfef95601890afd80700"),
        ("app.py:12:34", "app.py:12:35"),
        ("version 2026-13-40", "version 2026-13-41"),
    ],
)
def test_what_is_not_volatile(one: str, other: str) -> None:
    """Numbers are what most differences are about."""
    assert masked(one) != masked(other)


@pytest.mark.parametrize(
    "piece", slow_after(4, [" ", "[", "[a", "1", "1.", "1 ", "up ", "-rwx", "12:00:", "total 1,"])
)
def test_masking_takes_no_time(piece: str) -> None:
    """An agent's output may be made to take for ever."""
    began = time.process_time()
    masked(piece * (60_000 // len(piece)))
    assert time.process_time() - began < 2


@given(st.text(alphabet="drwx-total 0123456789:.\nNovSatUTC?user,/mp", max_size=200))
def test_masking_keeps_lines(text: str) -> None:
    """So that a difference can be told by its line."""
    assert masked(text).count("\n") == text.count("\n")
