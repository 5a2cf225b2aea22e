"""A loop at work and its end, as `ringfence loop start`, `resume`, `retry` and `logs` print it: lines, or NDJSON."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.cli.output import counted, notify, print_json_line
from ringfence.cli.render.summary import WARNING
from ringfence.errors import InfrastructureFault, RingfenceError

if TYPE_CHECKING:
    from ringfence.cli.render.agent import Line
    from ringfence.loop.place import LoopPlace
    from ringfence.loop.report import LoopReport
    from ringfence.loop.report.model import StoryReport
    from ringfence.loop.store.loops import LoopStore
    from ringfence.loop.store.rows import EventRow, LoopRow

Data = Mapping[str, Any]
_LOOK_S = 0.2
_LOST = 5
"""Consecutive looks without a process before a loop counts as interrupted: one may just be starting."""
_LINE_CHARS = 400
_MOST_FLAGGED = 10
_SHOWN = 3
_STYLES = {
    "story.passed": "green",
    "story.retried": "yellow",
    "story.failed": "red",
    "story.skipped": "red",
    "story.blocked": "bold yellow",
}


class LoopView:
    """Prints what happens, as lines or as JSON.

    A reader that leaves, or a database that is busy, does the loop no harm.

    Args:
        place: The loop's.
        json: As NDJSON.
    """

    def __init__(self, place: "LoopPlace", *, json: bool) -> None:
        from ringfence.cli.render.console import open_console
        from ringfence.loop.store.loops import LoopStore, open_database

        self._place = place
        self._database = open_database(place.database_url)
        self._store = LoopStore(self._database, place.id)
        self._is_json = json
        self._console = open_console()
        self._last = 0
        self._is_unwatched = False

    async def go_on(self) -> None:
        """Say in a line where the loop stands, and print from now on what is new."""
        events, stories = await self._store.events(), await self._store.stories()
        self._last = events[-1].number if events else 0
        counts = Counter(story.state.value for story in stories)
        self._try(lambda: self._print_before(counts))

    async def follow(self) -> None:
        """Print what happens, until cancelled."""
        while not self._is_unwatched:
            with suppress(InfrastructureFault):  # busy: the next look may do better
                await self._print_new()
            await anyio.sleep(_LOOK_S)

    async def finish(self, *, problem: "RingfenceError | None" = None) -> None:
        """Print what is left, how it ended and what it left.

        Args:
            problem: Why what was asked for after the last story is not done.
        """
        from ringfence.cli.loop.look import plan_of
        from ringfence.loop.report import gather

        await self._print_new()
        report = await gather(self._place, self._store, None, await plan_of(self._store))
        if any(story.merged for story in report.stories):
            report = replace(report, **await self._flagged(report))
        self._database.close()
        self._try(lambda: self._print_end(report, problem))
        if self._is_unwatched:
            notify(f"loop {report.id}  {report.state}: {report.reason}")

    async def _flagged(self, report: "LoopReport") -> dict[str, Any]:
        """What to look at before the branch is used; nothing where the loop's repository is in use, or gone."""
        from ringfence.loop.report.statistics import flagged_of
        from ringfence.loop.repository import LoopRepository

        with suppress(RingfenceError):
            repository = LoopRepository.open(self._place.clones)
            files = await flagged_of(repository, report.base, await repository.tip())
            return {"flagged": tuple(files), "flagged_count": len(files)}
        return {}

    async def print_all(self) -> None:
        """Print what has happened so far."""
        await self._print_new()
        self._database.close()

    async def _print_new(self) -> None:
        events = await self._store.events(self._last)
        if not events:
            return
        row = await self._store.get()
        for event in events:
            self._last = event.number
            # Of a loop that was resumed: the time while nothing worked on it is not counted.
            begun_ms = row.begun_ms if event.at_ms >= row.begun_ms else row.created_ms
            self._try(lambda event=event, at=begun_ms: self._print(event, at))  # type: ignore[misc]

    def _try(self, act: Callable[[], None]) -> None:
        """Print, while somebody reads it."""
        try:
            if not self._is_unwatched:
                act()
        except OSError:
            self._is_unwatched = True

    def _print(self, event: "EventRow", begun_ms: int) -> None:
        if self._is_json:
            story = {"story": event.story} if event.story is not None else {}
            head = {"event": event.type, "number": event.number, "at_ms": event.at_ms, **story}
            print_json_line({**head, **event.data})
        else:
            self._print_line(*event_line(event, begun_ms))

    def _print_before(self, counts: "Counter[str]") -> None:
        if self._is_json:
            print_json_line({"event": "loop.resumed", "number": self._last, "stories": dict(counts)})
            return
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        self._print_line(
            f"goes on: {told}; `ringfence loop show {self._place.id[-6:]}` tells what was before", ""
        )

    def _print_end(self, report: "LoopReport", problem: "RingfenceError | None") -> None:
        end = _summary(self._place, report, problem)
        if self._is_json:
            print_json_line({"event": "loop.summary", **end})
            return
        for story in report.stories:
            if story.state == "blocked":
                self._print_line(f"{story.id}: {story.reason}", "bold yellow")
        reason = f": {report.reason}" if report.reason not in ("", report.state) else ""
        self._print_line(f"loop {report.id}  {report.state}{reason}", "bold")
        for name in ("branch", "patch", "report"):
            if end[name] is not None:
                self._print_line(f"  {name}: {end[name]}", "")
        for line in _to_look_at(report):
            self._print_line(f"  {line}", "bold yellow")
        for command in end["next"]:
            self._print_line(f"  next: {command}", "")

    def _print_line(self, line: str, style: str) -> None:
        from ringfence.cli.render.console import print_line

        text = line.expandtabs(4)
        print_line(self._console, text if len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]} ...", style)
        self._console.file.flush()


def _to_look_at(report: "LoopReport") -> list[str]:
    """Files of the branch that run or are trusted on the user's machine, and those outside of what stories name."""
    shown = [f"{WARNING}: {file.path}" for file in report.flagged[:_MOST_FLAGGED]]
    more = report.flagged_count - len(shown)
    rest = [f"{WARNING}: {more} more, see the report"] if more else []
    return [*shown, *rest, *map(_outside, (story for story in report.stories if story.outside))]


def _outside(story: "StoryReport") -> str:
    """Files of a story that it does not name."""
    named = ", ".join(story.outside[:_MOST_FLAGGED])
    more = story.outside_count - len(story.outside[:_MOST_FLAGGED])
    return f"{story.id} changed files that it does not name: {named}{f' and {more} more' if more > 0 else ''}"


def _summary(place: "LoopPlace", report: "LoopReport", problem: "RingfenceError | None") -> dict[str, Any]:
    """How a loop ended, and what it left."""
    from ringfence.loop.report.statistics import MOST_FLAGGED
    from ringfence.loop.report.words import next_steps
    from ringfence.loop.report.writing import PAGE
    from ringfence.loop.state import EXIT_CODES, LoopState

    page = place.directory / PAGE
    state = LoopState.RUNNING if report.state == "interrupted" else LoopState(report.state)
    return {
        "id": report.id,
        "state": report.state,
        "reason": report.reason,
        "exit_code": int(EXIT_CODES[state] if problem is None else problem.exit_code),
        "branch": report.branch if any(story.merged for story in report.stories) else None,
        "patch": report.patch,
        "report": str(page) if page.is_file() else None,
        "runs_on_your_machine": [file.path for file in report.flagged[:MOST_FLAGGED]],
        "outside": {name: [*files] for name, files in report.outside.items()},
        "outstanding": [*report.outstanding],
        "next": next_steps(report),
    }


def print_loop(said: str | None, *, follow: bool, json: bool) -> int:
    """Print the events of a loop; where it is followed, to its end, and return the exit code of that."""
    from ringfence.cli.sandbox.standing import run_interruptible

    return run_interruptible(lambda: _watch(said, json=json) if follow else _print_so_far(said, json=json))


async def _print_so_far(said: str | None, *, json: bool) -> int:
    from ringfence.loop.choosing import choose_loop

    place = await choose_loop(said, Path.cwd(), is_changed=False)
    await LoopView(place, json=json).print_all()
    return 0


async def _watch(said: str | None, *, json: bool) -> int:
    from ringfence.loop.choosing import choose_loop
    from ringfence.loop.state import EXIT_CODES
    from ringfence.loop.store.loops import LoopStore, open_database

    place = await choose_loop(said, Path.cwd(), is_changed=False)
    view = LoopView(place, json=json)
    database = open_database(place.database_url)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.follow)
            row = await _ended(place, LoopStore(database, place.id))
            tasks.cancel_scope.cancel()
    finally:
        database.close()
    await view.finish()
    if not row.state.is_end:
        notify(
            f"nobody works on loop {place.id}: it was interrupted; `ringfence loop resume {place.id[-6:]}` goes on"
        )
    return EXIT_CODES[row.state]


async def _ended(place: "LoopPlace", store: "LoopStore") -> "LoopRow":
    """Wait until nothing more is done about the loop, or nobody works on it."""
    lost = 0
    while place.is_worked_on if (row := await store.get()).state.is_end else lost < _LOST:
        lost = 0 if place.is_worked_on else lost + 1
        await anyio.sleep(_LOOK_S)
    return row


def event_line(event: "EventRow", begun_ms: int) -> "Line":
    """An event: how long after the loop's beginning, which story, what. Nothing is escaped here.

    Args:
        event: It.
        begun_ms: When the loop was begun, or resumed.
    """
    seconds = max(0, event.at_ms - begun_ms) // 1000
    stamp = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    told = TOLD.get(event.type)
    what = told(event.data) if told is not None else event.type
    story = f"{event.story}: " if event.story else ""
    return f"{stamp}  {story}{what}", _STYLES.get(event.type, "")


def _started(data: Data) -> str:
    red, checks = int(data.get("red_count", 0)), _several(data.get("red_checks"))
    before = f"; {counted(red, 'test')} red before: {_several(data.get('red'))}" if red else ""
    others = f"; red before: {checks}" if checks else ""
    return f"{_stories(data.get('stories', 0))} from commit {_short(data.get('base'))}{before}{others}"


def _stories(count: Any) -> str:
    return "1 story" if count == 1 else f"{count} stories"


def _written(data: Data) -> str:
    return f"tests written, and red for the right reason: {_several(data.get('files'))}"


def _committed(data: Data) -> str:
    files = counted(int(data.get("files", 0)), "file")
    return f"attempt {data.get('attempt')}: code of {files}, {_short(data.get('commit'))}"


def _checked(data: Data) -> str:
    checks = data.get("checks")
    told = (
        ", ".join(f"{name} {colour}" for name, colour in checks.items()) if isinstance(checks, dict) else ""
    )
    return f"attempt {data.get('attempt')}: checks {'green' if data.get('is_green') else 'red'} ({told})"


def _rejected(data: Data) -> str:
    complaints = data.get("complaints") or [""]
    what = {"test_writer": "tests rejected", "merge": "begun anew"}.get(str(data.get("role")), "rejected")
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"attempt {data.get('attempt')}: {what}: {complaints[0]}{more}"


def _passed(data: Data) -> str:
    return f"passed on attempt {data.get('attempt')}, {_short(data.get('commit'))}"


def _short(commit: Any) -> str:
    return str(commit or "")[:12]


def _several(names: Any) -> str:
    names = [str(name) for name in names or ()]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


TOLD: Mapping[str, Callable[[Data], str]] = {
    "loop.started": _started,
    "story.dispatched": lambda data: f"begun at {_short(data.get('base'))}",
    "tests.written": _written,
    "code.committed": _committed,
    "checks.completed": _checked,
    "story.retried": _rejected,
    "story.failed": _rejected,
    "story.passed": _passed,
    "story.skipped": lambda data: f"skipped: {data.get('reason')}",
    "story.blocked": lambda data: f"blocked: {data.get('question')}",
    "loop.completed": lambda data: f"the loop has ended: {data.get('reason')}",
    "loop.merged": lambda data: f"{data.get('branch')} is at {_short(data.get('commit'))} now",
    "loop.proposed": lambda data: f"pull request: {data.get('address')}",
    "loop.cancelled": lambda _: "the loop was stopped",
}
