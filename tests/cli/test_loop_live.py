"""A loop at work, as a terminal or a log shows it."""

import io
from json import loads as parse

import anyio
import pyte
import pytest
from rich.console import Console
from tests.loop.report.filling import BEGUN_MS, Filling, story

from ringfence.cli.doing import Doing
from ringfence.cli.loop_lines import event_line
from ringfence.cli.loop_live import LoopView
from ringfence.cli.loop_screen import LoopScreen
from ringfence.config.paths import state_dir
from ringfence.events import (
    Event,
    JobEnded,
    ModelRetried,
    TextStreamed,
    ToolCalled,
    ToolReturned,
    VerificationStarted,
)
from ringfence.loop.state import LoopState
from ringfence.loop.store.rows import EventRow

pytestmark = pytest.mark.anyio
_WIDTH, _HEIGHT = 80, 24
_EVIL = "\x1b[2J\x1b]0;title\x07\u202e"


class _Terminal:
    """What stands on a terminal."""

    def __init__(self, width: int = _WIDTH, height: int = _HEIGHT) -> None:
        self.file = io.StringIO()
        self.console = Console(
            file=self.file, width=width, height=height, force_terminal=True, highlight=False, color_system=None,
            legacy_windows=False,
        )  # fmt: skip
        self._screen = pyte.Screen(width, height)
        self._stream = pyte.Stream(self._screen)
        self._screen.set_mode(pyte.modes.LNM)
        self._read = 0

    def lines(self) -> list[str]:
        """Its lines, without those below the last one."""
        text = self.file.getvalue()
        self._stream.feed(text[self._read :])
        self._read = len(text)
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip().split("\n")


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
    await filling.store.change("two", attempt=2)
    await filling.step("two", "code.2", outcome=None, role="implementor", attempt=2, run_id="now")
    await filling.at_fixed_times()
    return filling


def _call(command: str, call_id: str = "1") -> ToolCalled:
    return ToolCalled(call_id=call_id, tool="shell", arguments={"command": command}, reasoning="why not")


async def _drawn(filling: Filling, terminal: _Terminal, *events: Event, after_s: int = 42) -> LoopScreen:
    titles = {each.id: each.title for each in filling.plan.stories}
    screen = LoopScreen(terminal.console, attempts=3, titles=titles)
    steps = await filling.store.outline()
    for event in events:
        screen.take("now", event)
    now = max(step.began_ms for step in steps) + after_s * 1000
    screen.draw(await filling.store.stories(), steps, now_ms=now)
    return screen


async def test_the_table_on_a_terminal():
    """Stories, stages, attempts, what they took, and the last words of who works."""
    filling, terminal = await _at_work(), _Terminal()
    await _drawn(filling, terminal, _call("pytest -q\necho done"))
    filling.close()
    assert terminal.lines() == [
        "story                 state   try stage       time tokens  cost",
        "one   The piece one   passed  1/3 verdict ok  4:00  12.9k $0.25",
        "two   The piece two   running 2/3 code ...    5:12  12.9k $0.25",
        "three The piece three waiting                    -      0     -",
        "  two  implementor  42 s  $ pytest -q",
    ]


async def test_what_happened_stands_above_the_table_once():
    """However often the table is drawn anew below it."""
    filling, terminal = await _at_work(), _Terminal()
    screen = await _drawn(filling, terminal)
    for second in range(50, 60):
        terminal.console.print(f"line {second}")
        steps = await filling.store.outline()
        now = max(step.began_ms for step in steps) + second * 1000
        screen.draw(await filling.store.stories(), steps, now_ms=now)
    lines = terminal.lines()
    assert lines[:10] == [f"line {second}" for second in range(50, 60)]
    assert [line.split()[0] for line in lines[10:]] == ["story", "one", "two", "three", "two"]
    screen.end()
    filling.close()
    assert terminal.lines() == lines[:10]


async def test_a_table_that_is_as_it_was_is_not_drawn_again():
    """Nothing flickers."""
    filling, terminal = await _at_work(), _Terminal()
    screen = await _drawn(filling, terminal)
    drawn = terminal.file.getvalue()
    steps = await filling.store.outline()
    now = max(step.began_ms for step in steps) + 42_300
    screen.draw(await filling.store.stories(), steps, now_ms=now)
    filling.close()
    assert terminal.file.getvalue() == drawn


async def test_of_many_stories_those_at_work_are_shown():
    """As many as the terminal has lines for; how many more there are is said."""
    filling = await Filling(state_dir(), *(story(f"s{number:03}") for number in range(200))).begin()
    await filling.tests("s150")
    terminal = _Terminal(height=16)
    await _drawn(filling, terminal)
    filling.close()
    lines = terminal.lines()
    assert len(lines) <= 16
    assert (any(line.startswith("s150") for line in lines), lines[-1] == "+191 more") == (True, True)


async def test_hostile_words_do_not_move_the_cursor():
    """Of agents, of stories' ids and of calls."""
    filling = await Filling(state_dir(), story(f"a{_EVIL}")).begin()
    await filling.store.change(f"a{_EVIL}", attempt=1)
    await filling.step(f"a{_EVIL}", "code.1", outcome=None, role="implementor", attempt=1, run_id="now")
    terminal = _Terminal(width=120)
    screen = await _drawn(filling, terminal, TextStreamed(text=f"I say {_EVIL}\nand more {_EVIL}"))
    filling.close()
    assert terminal.lines()[-1].endswith(r"and more \x1b[2J\x1b]0;title\x07\u202e")
    assert "\x07" not in terminal.file.getvalue()
    screen.end()


async def test_lines_for_a_log_are_told_once_each(capsys: pytest.CaptureFixture[str]):
    """Without a terminal: each event as a line, then the end."""
    filling = await _at_work()
    view = LoopView(filling.place, json=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(view.follow)
        with anyio.fail_after(20):
            while "rejected" not in capsys.readouterr().out:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await filling.store.tell("e", "loop.completed", state="limit", reason="used up", passed=1)
    await filling.store.end(LoopState.LIMIT, "used up")
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
async def test_a_loop_that_goes_on_is_told_from_where_it_stands(
    json: bool, capsys: pytest.CaptureFixture[str]
):
    """What an earlier process told is not told again: a line says how the stories stand, and then comes what is new."""
    filling = await _at_work()
    view = LoopView(filling.place, json=json)
    await view.go_on()
    await filling.store.tell("e", "story.skipped", story="two", reason="no")
    await filling.store.end(LoopState.INCOMPLETE, "1 passed")
    filling.close()
    await view.finish()
    before, new, *_ = capsys.readouterr().out.splitlines()
    if json:
        assert parse(before)["stories"] == {"passed": 1, "running": 1, "waiting": 1}
        assert parse(new)["event"] == "story.skipped"
    else:
        assert before.startswith("goes on: 1 passed, 1 running, 1 waiting; `ringfence loop show")
        assert new.endswith("two: skipped: no")


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
    await filling.store.end(LoopState.INCOMPLETE, "1 passed")
    filling.close()
    monkeypatch.setattr("sys.stdout", _Closed())
    view = LoopView(filling.place, json=json)
    with anyio.fail_after(20):
        await view.follow()
    await view.finish()
    assert "loop 20260101-000000-abcdef  incomplete: 1 passed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("loop.started", {"base": "c" * 40, "stories": 2, "red": ["t1"], "red_count": 1, "red_checks": []},
         "0:01:01  2 stories from commit cccccccccccc; 1 test red before: t1"),
        ("story.dispatched", {"base": "c" * 40, "slot": 0}, "0:01:01  s: begun at cccccccccccc"),
        ("tests.written", {"commit": "c", "files": ["a", "b", "c", "d", "e"]},
         "0:01:01  s: tests written, and red for the right reason: a, b, c and 2 more"),
        ("code.committed", {"attempt": 2, "commit": "c" * 40, "files": 1},
         "0:01:01  s: attempt 2: code of 1 file, cccccccccccc"),
        ("checks.completed", {"attempt": 1, "is_green": False, "checks": {"mypy": "red"}},
         "0:01:01  s: attempt 1: checks red (mypy red)"),
        ("story.retried", {"attempt": 1, "role": "test_writer", "complaints": ["x", "y"]},
         "0:01:01  s: attempt 1: tests rejected: x (and 1 more)"),
        ("story.failed", {"attempt": 3, "role": "implementor", "complaints": ["x"]},
         "0:01:01  s: attempt 3: rejected: x"),
        ("story.passed", {"attempt": 1, "commit": "c" * 40}, "0:01:01  s: passed on attempt 1, cccccccccccc"),
        ("story.skipped", {"reason": "no"}, "0:01:01  s: skipped: no"),
        ("story.blocked", {"question": "which?"}, "0:01:01  s: blocked: which?"),
        ("loop.completed", {"state": "x", "reason": "r", "passed": 0}, "0:01:01  the loop has ended: r"),
        ("loop.cancelled", {}, "0:01:01  the loop was stopped"),
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

    from ringfence.cli.loop_lines import TOLD
    from ringfence.events import AnyEvent

    kinds = {
        kind.__struct_config__.tag
        for kind in get_args(AnyEvent)
        if kind.__module__ == "ringfence.events.loop"
    }
    assert kinds == {*TOLD}


def test_what_is_being_done_is_the_call_that_runs_or_what_was_said_last():
    """By its first line; braces that end an answer say nothing."""
    doing = Doing()
    assert doing.words == ""
    said = []
    for event in (
        TextStreamed(text="I look\n"), _call("make\nmake test"), ToolReturned(
            call_id="1", tool="shell", is_error=False, content="", duration_ms=1.0),
        TextStreamed(text='{"a":\n "the answer"\n}\n'), ModelRetried(attempt=1, status=529, reason="busy", wait_s=2.0),
        VerificationStarted(command="make check"),
    ):  # fmt: skip
        doing.take(event)
        said.append(doing.words)
    assert said == ["I look", "$ make", "$ make", '"the answer"', "model: busy; again in 2.0 s", "make check"]
    doing.take(JobEnded(state="failed", reason="", exit_code=1))
    assert doing.running == {}
