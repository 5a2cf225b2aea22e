"""What a person, a log or a program sees of a loop at work."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from ringfence.errors import InfrastructureFault

if TYPE_CHECKING:
    from ringfence.cli.loop_screen import LoopScreen
    from ringfence.errors import RingfenceError
    from ringfence.events import Event
    from ringfence.loop.place import LoopPlace
    from ringfence.loop.report import LoopReport
    from ringfence.loop.store.rows import EventRow, LoopRow, StepRow

SCHEMA_VERSION = 1
_LOOK_S = 0.2
_LINE_CHARS = 400
_MOST_FLAGGED = 10


class LoopView:
    """Prints what happens: on a terminal above a table that stays, elsewhere plain lines, or JSON.

    A reader that leaves, or a database that is busy, does the loop no harm.

    Args:
        place: The loop's.
        json: As NDJSON.
    """

    def __init__(self, place: "LoopPlace", *, json: bool) -> None:
        from ringfence.cli.console import open_console
        from ringfence.loop.store.loops import LoopStore, open_database

        self._place = place
        self._database = open_database(place.database_url)
        self._store = LoopStore(self._database, place.id)
        self._is_json = json
        self._console = open_console()
        self._screen: LoopScreen | None = None
        self._row: LoopRow | None = None
        self._last = 0
        self._is_unwatched = False
        self.at_work: list[StepRow] = []
        """What goes on, as far as it is shown on a terminal."""

    async def show(self, run_id: str, event: "Event") -> None:
        """An event of one of its runs."""
        if self._screen is not None:
            self._screen.take(run_id, event)

    async def go_on(self) -> None:
        """Say in a line where the loop stands, and print from now on what is new."""
        events, stories = await self._store.events(), await self._store.stories()
        self._last = events[-1].number if events else 0
        counts = Counter(story.state.value for story in stories)
        self._try(lambda: self._print_before(counts))

    async def follow(self) -> None:
        """Print what happens, until cancelled."""
        try:
            while not self._is_unwatched:
                with suppress(InfrastructureFault):  # busy: the next look may do better
                    await self._look()
                await anyio.sleep(_LOOK_S)
        finally:
            self._end_screen()

    async def finish(self, *, problem: "RingfenceError | None" = None) -> None:
        """Print what is left, how it ended and what it left.

        Args:
            problem: Why what was asked for after the last story is not done.
        """
        from ringfence.cli.loop_look import plan_of
        from ringfence.cli.saying import say
        from ringfence.loop.report import gather

        self._row = self._row or await self._store.get()
        await self._print_new(self._row)
        report = await gather(self._place, self._store, None, await plan_of(self._store))
        if any(story.merged for story in report.stories):
            report = replace(report, **await self._flagged(report))
        self._database.close()
        self._try(lambda: self._print_end(report, problem))
        if self._is_unwatched:
            say(f"loop {report.id}  {report.state}: {report.reason}")

    async def _look(self) -> None:
        if self._row is None:
            self._row = await self._store.get()
            await self._begin_screen(self._row)
        await self._print_new(self._row)
        screen = self._screen
        if screen is None:
            return
        from ringfence.loop.report.stages import working
        from ringfence.loop.store.loops import now_ms

        stories, steps = await self._store.stories(), await self._store.outline()
        self.at_work = [*working(steps).values()]
        self._try(lambda: screen.draw(stories, steps, now_ms=now_ms()))

    async def _begin_screen(self, row: "LoopRow") -> None:
        if self._is_json or not self._console.is_terminal or self._console.is_dumb_terminal:
            return
        from ringfence.cli.loop_look import plan_of
        from ringfence.cli.loop_screen import LoopScreen
        from ringfence.loop.report.gathering import settings_of

        plan = await plan_of(self._store)
        titles = {story.id: story.title for story in plan.stories} if plan is not None else {}
        self._screen = LoopScreen(self._console, attempts=settings_of(row).attempts, titles=titles)

    async def _flagged(self, report: "LoopReport") -> dict[str, Any]:
        """What to look at before the branch is used; nothing where the loop's repository is in use, or gone."""
        from ringfence.errors import RingfenceError
        from ringfence.loop.report.statistics import flagged_of
        from ringfence.loop.repository import LoopRepository

        with suppress(RingfenceError):
            repository = LoopRepository.open(self._place.clones)
            files = await flagged_of(repository, report.base, await repository.tip())
            return {"flagged": tuple(files), "flagged_count": len(files)}
        return {}

    def _end_screen(self) -> None:
        screen, self._screen = self._screen, None
        if screen is not None:
            self._try(screen.end)

    async def _print_new(self, row: "LoopRow") -> None:
        for event in await self._store.events(self._last):
            self._last = event.number
            self._try(lambda event=event: self._print(event, row.created_ms))  # type: ignore[misc]

    def _try(self, act: Callable[[], None]) -> None:
        """Print, while somebody reads it."""
        try:
            if not self._is_unwatched:
                act()
        except OSError:
            self._is_unwatched = True

    def _print(self, event: "EventRow", begun_ms: int) -> None:
        from ringfence.cli.loop_lines import event_line

        if self._is_json:
            story = {"story": event.story} if event.story is not None else {}
            head = {"event": event.type, "number": event.number, "at_ms": event.at_ms, **story}
            _print_json({**head, **event.data})
        else:
            self._print_line(*event_line(event, begun_ms))

    def _print_before(self, counts: "Counter[str]") -> None:
        if self._is_json:
            _print_json({"event": "loop.resumed", "number": self._last, "stories": dict(counts)})
            return
        told = ", ".join(f"{count} {state}" for state, count in counts.items())
        self._print_line(
            f"goes on: {told}; `ringfence loop show {self._place.id[-6:]}` tells what was before", ""
        )

    def _print_end(self, report: "LoopReport", problem: "RingfenceError | None") -> None:
        from ringfence.cli.loop_table import rows_of, stories_table

        end = _summary(self._place, report, problem)
        if self._is_json:
            _print_json({"event": "loop.summary", **end})
            return
        if self._console.is_terminal:
            self._console.print(stories_table(rows_of(report), width=self._console.width))
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
        from ringfence.cli.console import print_line

        text = line.expandtabs(4)
        print_line(self._console, text if len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]} ...", style)
        self._console.file.flush()


def _to_look_at(report: "LoopReport") -> list[str]:
    """Files of the branch that run or are trusted on the user's machine, a few of each reason."""
    from ringfence.cli.flagged import WARNING

    shown = [f"{WARNING}: {file.path}" for file in report.flagged[:_MOST_FLAGGED]]
    more = report.flagged_count - len(shown)
    return [*shown, f"{WARNING}: {more} more, see the report"] if more else shown


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
        "outstanding": [*report.outstanding],
        "next": next_steps(report),
    }


def _print_json(document: dict[str, Any]) -> None:
    from ringfence.cli.escape import safe_json

    sys.stdout.write(f"{safe_json({'schema_version': SCHEMA_VERSION, **document})}\n")
    sys.stdout.flush()
