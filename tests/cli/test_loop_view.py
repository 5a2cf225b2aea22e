"""A loop at work, as a terminal or a log shows it."""

import io
from json import loads as parse

import anyio
import pytest
from tests.loop.report.filling import BEGUN_MS, Filling, story

from ringfence.cli.loop.view import LoopView, event_line
from ringfence.config.paths import state_dir
from ringfence.loop.rows import EventRow
from ringfence.loop.state import LoopState

pytestmark = pytest.mark.anyio


async def _at_work() -> Filling:
    """One story is done, of the second an attempt was rejected and the implementor works on the next."""
    filling = await Filling(state_dir(), story("one"), story("two"), story("three")).begin()
    await filling.tests("one")
    await filling.code("one", 1)
    await filling.judged("one", 1)
    await filling.passed("one")
    await filling.tests("two")
    await filling.code("two", 1)
    await filling.judged("two", 1, verdict="not_met")
    await filling.rejected("two", 1, "no")
    filling.store.update_story("two", attempt=2)
    await filling.step("two", "code.2", outcome=None, role="implementor", attempt=2, run_id="now")
    await filling.at_fixed_times()
    return filling


async def test_lines_for_a_log_are_told_once_each(capsys: pytest.CaptureFixture[str]):
    """Without a terminal: each event as a line, then the end."""
    filling = await _at_work()
    view = LoopView(filling.directory, json=False)
    with anyio.fail_after(20):
        await view.follow()
    assert "rejected" in capsys.readouterr().out
    filling.store.add_event("e", "loop.completed", state="limit", reason="used up", passed=1)
    filling.store.end(LoopState.LIMIT, "used up")
    filling.close()
    await view.finish()
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.endswith("  the loop has ended: used up")
    assert rest == [
        "loop 20260101-000000-abcdef  limit: used up",
        "  branch: ringfence/loop-20260101-000000-abcdef",
        "  next: ringfence loop resume abcdef",
    ]


@pytest.mark.parametrize("json", [True, False])
async def test_hostile_words_do_not_move_the_cursor(json: bool, capsys: pytest.CaptureFixture[str]):
    """Control characters in a story's id, an agent's text or the end of a loop are spelled out, in lines and in JSON."""
    evil = "\x1b[2J\x1b]0;title\x07\u202e"
    filling = await Filling(state_dir(), story(f"a{evil}")).begin()
    filling.store.add_event("e", "loop.completed", state="limit", reason=f"I say {evil}", passed=0)
    filling.store.end(LoopState.LIMIT, f"used up {evil}")
    filling.close()
    await LoopView(filling.directory, json=json).finish()
    printed = capsys.readouterr().out
    assert "I say" in printed
    assert "used up" in printed
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)


@pytest.mark.parametrize("json", [True, False])
async def test_a_loop_that_goes_on_is_told_from_where_it_stands(
    json: bool, capsys: pytest.CaptureFixture[str]
):
    """What an earlier process told is not told again: a line says how the stories stand, and then comes what is new."""
    filling = await _at_work()
    view = LoopView(filling.directory, json=json)
    view.attach(filling.store, is_resumed=True)
    filling.store.add_event("e", "story.skipped", story="two", reason="no")
    filling.store.end(LoopState.INCOMPLETE, "1 passed")
    filling.close()
    await view.finish()
    before, new, *_ = capsys.readouterr().out.splitlines()
    if json:
        assert parse(before)["stories"] == {"passed": 1, "running": 1, "waiting": 1}
        assert parse(new)["event"] == "story.skipped"
    else:
        assert before.startswith("resumed: 1 passed, 1 running, 1 waiting; `ringfence loop logs")
        assert new.endswith("two: skipped: no")


async def test_the_times_of_a_resumed_loop_count_from_its_start(capsys: pytest.CaptureFixture[str]):
    """As those of its earlier events do, so that no line seems to be earlier than the one before it."""
    filling = await _at_work()
    with filling.store.transaction():
        filling.store.end(LoopState.INCOMPLETE, "1 passed")
        started_ms = filling.store.begin_round().started_ms
        filling.store.add_event("e", "story.skipped", story="two", reason="no")
    LoopView(filling.directory, json=False).print_new()
    last = capsys.readouterr().out.splitlines()[-1]
    hours = (started_ms - BEGUN_MS) // 3_600_000
    assert last.startswith(f"{hours}:"), last
    filling.close()


class _Closed(io.StringIO):
    """A reader that has left."""

    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("json", [True, False])
async def test_a_reader_that_leaves_does_not_end_the_loop(
    json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """How it ended is told on stderr."""
    filling = await _at_work()
    filling.store.end(LoopState.INCOMPLETE, "1 passed")
    filling.close()
    monkeypatch.setattr("sys.stdout", _Closed())
    view = LoopView(filling.directory, json=json)
    with anyio.fail_after(20):
        await view.follow()
    await view.finish()
    assert "loop 20260101-000000-abcdef  incomplete: 1 passed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("loop.started", {"base": "c" * 40, "stories": 2, "red": ["t1"], "red_count": 1, "red_checks": []},
         "0:01:01  2 stories from commit cccccccccccc; 1 test already failing: t1"),
        ("story.dispatched", {"base": "c" * 40, "slot": 0}, "0:01:01  s: started at cccccccccccc"),
        ("tests.written", {"commit": "c", "files": ["a", "b", "c", "d", "e"]},
         "0:01:01  s: tests written and failing as expected: a, b, c and 2 more"),
        ("code.committed", {"attempt": 2, "commit": "c" * 40, "files": 1},
         "0:01:01  s: attempt 2: code of 1 file, cccccccccccc"),
        ("checks.completed", {"attempt": 1, "is_green": False, "checks": {"mypy": "red"}},
         "0:01:01  s: attempt 1: checks red (mypy red)"),
        ("story.retried", {"attempt": 1, "role": "test_writer", "complaints": ["x", "y"]},
         "0:01:01  s: attempt 1: tests rejected: x (and 1 more)"),
        ("story.retried", {"attempt": 1, "role": "implementor", "complaints": ["1 failed:\n  t.py: no\n"]},
         "0:01:01  s: attempt 1: rejected: 1 failed: t.py: no"),
        ("story.failed", {"attempt": 3, "role": "implementor", "complaints": ["x"]},
         "0:01:01  s: attempt 3: rejected: x"),
        ("story.passed", {"attempt": 1, "commit": "c" * 40}, "0:01:01  s: passed on attempt 1, cccccccccccc"),
        ("story.passed", {"attempt": 1, "commit": "c" * 40, "is_by_person": True, "by": "ada"},
         "0:01:01  s: accepted by a person (ada), attempt 1, cccccccccccc"),
        ("story.rejected", {"attempt": 1, "commit": "c" * 40, "by": "ada", "reason": "not like this"},
         "0:01:01  s: rejected by a person (ada), taken back from the branch: not like this"),
        ("story.skipped", {"reason": "no"}, "0:01:01  s: skipped: no"),
        ("story.blocked", {"question": "which?"}, "0:01:01  s: blocked: which?"),
        ("loop.completed", {"state": "x", "reason": "r", "passed": 0}, "0:01:01  the loop has ended: r"),
        ("loop.cancelled", {}, "0:01:01  the loop was cancelled"),
        ("loop.somersaulted", {}, "0:01:01  loop.somersaulted"),
    ],
    ids=lambda each: each if isinstance(each, str) and each.count(".") == 1 and " " not in each else "",
)  # fmt: skip
def test_an_event_is_a_line(kind: str, data: dict[str, object], said: str):
    """In words, and one of another version by its name."""
    name = None if kind.startswith("loop.") else "s"
    assert event_line(EventRow(1, BEGUN_MS + 61_000, kind, name, data), BEGUN_MS)[0] == said


def test_every_kind_of_event_of_a_loop_has_words():
    """None is told by its bare name."""
    from typing import get_args

    from ringfence.cli.loop.view import EVENT_FORMATTERS
    from ringfence.events import AnyEvent

    kinds = {
        kind.__struct_config__.tag
        for kind in get_args(AnyEvent)
        if kind.__module__ == "ringfence.events.loop"
    }
    assert kinds == {*EVENT_FORMATTERS}
