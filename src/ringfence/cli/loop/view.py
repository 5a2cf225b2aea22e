"""Prints the events and the summary of a loop, as lines or NDJSON, for `loop start`, `resume`, `retry` and `logs`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.cli.output import counted, notify, print_json_line
from ringfence.cli.render.summary import WARNING

if TYPE_CHECKING:
    from ringfence.cli.render.agent import Line
    from ringfence.errors import RingfenceError
    from ringfence.loop.directory import LoopDirectory
    from ringfence.loop.report import LoopReport
    from ringfence.loop.report.model import StoryReport
    from ringfence.loop.repository import LoopRepository
    from ringfence.loop.rows import EventRow, LoopRow
    from ringfence.loop.store import LoopStore

Data = Mapping[str, Any]
_LINE_CHARS = 400
_MAX_FLAGGED_PRINTED = 10
_MAX_NAMES_SHOWN = 3
_STYLES = {
    "story.passed": "green",
    "story.retried": "yellow",
    "story.failed": "red",
    "story.rejected": "red",
    "story.skipped": "red",
    "story.blocked": "bold yellow",
}


class LoopView:
    """Prints the events of a loop, as lines or as NDJSON.

    A closed output never stops the loop.

    Args:
        directory: The loop's directory.
        json: Whether to print NDJSON.
    """

    def __init__(self, directory: "LoopDirectory", *, json: bool) -> None:
        from ringfence.cli.render.console import open_console

        self._directory = directory
        self._is_json = json
        self._console = open_console()
        self._last = 0
        self._store: LoopStore | None = None
        self._output_closed = False

    def attach(self, store: "LoopStore", *, is_resumed: bool) -> None:
        """Print each event of a loop that this process runs; for a resumed loop, first its state in one line."""
        if is_resumed:
            self._last = store.events[-1].number if store.events else 0
            counts = Counter(story.state.value for story in store.stories)
            self._print_unless_closed(lambda: self._print_resumed(counts))
        self._store = store
        store.subscribe(lambda event: self._print_events([event], store.loop))

    async def follow(self) -> None:
        """Print the events of a loop that another process runs, until no process runs it."""
        from ringfence.loop.control import follow_worker

        await follow_worker(self._directory, self.print_new)

    async def finish(
        self, *, repository: "LoopRepository | None" = None, problem: "RingfenceError | None" = None
    ) -> None:
        """Print the remaining events and the summary of the loop.

        Args:
            repository: The loop's repository, if this process has opened it.
            problem: Why the steps after the last story (merge, pull request) were not completed.
        """
        from ringfence.loop.report import build_report
        from ringfence.loop.report.reader import open_repository, plan_of
        from ringfence.loop.store import read_store

        if self._store is None:
            self.print_new()
        store = self._store or read_store(self._directory)
        repository = repository or open_repository(self._directory)
        report = await build_report(self._directory, store, repository, plan_of(store), with_diffs=False)
        self._print_unless_closed(lambda: self._print_end(report, problem))
        if self._output_closed:
            notify(f"loop {report.id}  {report.state}: {report.reason}")

    def print_new(self) -> None:
        """Print the events in the database since the last one that was printed."""
        from ringfence.loop.store import read_events, read_overview

        events = read_events(self._directory, self._last)
        if events:
            self._print_events(events, read_overview(self._directory)[0])

    def _print_events(self, events: "Sequence[EventRow]", row: "LoopRow") -> None:
        for event in events:
            self._last = event.number
            self._print_unless_closed(partial(self._print, event, row.created_ms))

    def _print_unless_closed(self, print_: Callable[[], None]) -> None:
        """Print, unless an earlier write failed because the output was closed."""
        try:
            if not self._output_closed:
                print_()
        except OSError:
            self._output_closed = True

    def _print(self, event: "EventRow", started_ms: int) -> None:
        if self._is_json:
            story = {"story": event.story} if event.story is not None else {}
            head = {"event": event.type, "number": event.number, "at_ms": event.at_ms, **story}
            print_json_line({**head, **event.data})
        else:
            self._print_line(*event_line(event, started_ms))

    def _print_resumed(self, counts: "Counter[str]") -> None:
        if self._is_json:
            print_json_line({"event": "loop.resumed", "number": self._last, "stories": dict(counts)})
            return
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        self._print_line(
            f"resumed: {states}; `ringfence loop logs {self._directory.id[-6:]}` shows earlier events", ""
        )

    def _print_end(self, report: "LoopReport", problem: "RingfenceError | None") -> None:
        from ringfence.loop.report.text import one_line

        end = _summary(self._directory, report, problem)
        if self._is_json:
            print_json_line({"event": "loop.summary", **end})
            return
        for story in report.stories:
            if story.state == "blocked":
                self._print_line(f"{story.id}: {one_line(story.reason)}", "bold yellow")
        reason = f": {one_line(report.reason)}" if report.reason not in ("", report.state) else ""
        self._print_line(f"loop {report.id}  {report.state}{reason}", "bold")
        for name in ("branch", "patch", "report"):
            if end[name] is not None:
                self._print_line(f"  {name}: {end[name]}", "")
        for line in _review_warnings(report):
            self._print_line(f"  {line}", "bold yellow")
        for command in end["next"]:
            self._print_line(f"  next: {command}", "")

    def _print_line(self, line: str, style: str) -> None:
        from ringfence.cli.render.console import print_line

        text = line.expandtabs(4)
        print_line(self._console, text if len(text) <= _LINE_CHARS else f"{text[:_LINE_CHARS]} ...", style)
        self._console.file.flush()


def _review_warnings(report: "LoopReport") -> list[str]:
    """Warn of files that run or are trusted on the user's machine, and of files that no story names."""
    shown = [f"{WARNING}: {file.path}" for file in report.flagged[:_MAX_FLAGGED_PRINTED]]
    more = report.flagged_count - len(shown)
    rest = [f"{WARNING}: {more} more, see the report"] if more else []
    return [*shown, *rest, *map(_outside_warning, (story for story in report.stories if story.outside))]


def _outside_warning(story: "StoryReport") -> str:
    """Warn of files that a story changed but does not name."""
    named = ", ".join(story.outside[:_MAX_FLAGGED_PRINTED])
    more = story.outside_count - len(story.outside[:_MAX_FLAGGED_PRINTED])
    return f"{story.id} changed files that it does not name: {named}{f' and {more} more' if more > 0 else ''}"


def _summary(
    directory: "LoopDirectory", report: "LoopReport", problem: "RingfenceError | None"
) -> dict[str, Any]:
    """Collect how a loop ended, with the relevant files and commands."""
    from ringfence.loop.report.files import PAGE
    from ringfence.loop.report.text import next_steps
    from ringfence.loop.state import EXIT_CODES, LoopState

    page = directory.path / PAGE
    state = LoopState.RUNNING if report.state == "interrupted" else LoopState(report.state)
    return {
        "id": report.id,
        "state": report.state,
        "reason": report.reason,
        "exit_code": int(EXIT_CODES[state] if problem is None else problem.exit_code),
        "branch": report.branch if report.is_delivered else None,
        "patch": report.patch,
        "report": str(page) if page.is_file() else None,
        "runs_on_your_machine": [file.path for file in report.flagged],
        "outside": {name: [*files] for name, files in report.outside.items()},
        "outstanding": [*report.outstanding],
        "next": next_steps(report),
    }


def print_loop(loop_ref: str | None, *, follow: bool, json: bool) -> int:
    """Print the events of a loop; with `follow`, print until the loop ends and return its exit code."""
    from ringfence.cli.sandbox.actions import run_interruptible

    print_events = _follow_to_end if follow else _print_so_far
    return run_interruptible(lambda: print_events(loop_ref, json=json))


async def _print_so_far(loop_ref: str | None, *, json: bool) -> int:
    from ringfence.loop.selection import select_loop

    directory = await select_loop(loop_ref, Path.cwd())
    LoopView(directory, json=json).print_new()
    return 0


async def _follow_to_end(loop_ref: str | None, *, json: bool) -> int:
    from ringfence.loop.selection import select_loop
    from ringfence.loop.state import EXIT_CODES
    from ringfence.loop.store import read_overview

    directory = await select_loop(loop_ref, Path.cwd())
    view = LoopView(directory, json=json)
    await view.follow()
    await view.finish()
    row, _ = read_overview(directory)
    if not row.state.is_end:
        notify(
            f"loop {directory.id} was interrupted (no process is running it); "
            f"resume it with `ringfence loop resume {directory.id[-6:]}`"
        )
    return EXIT_CODES[row.state]


def event_line(event: "EventRow", started_ms: int) -> "Line":
    """Format an event with the time since the loop's start and the story's id. The caller escapes the text.

    Args:
        event: The event to format.
        started_ms: When the loop was started, in milliseconds since 1970; also of a resumed loop.
    """
    from ringfence.loop.report.text import one_line

    seconds = max(0, event.at_ms - started_ms) // 1000
    stamp = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    formatter = EVENT_FORMATTERS.get(event.type)
    text = one_line(formatter(event.data)) if formatter is not None else event.type
    story = f"{event.story}: " if event.story else ""
    return f"{stamp}  {story}{text}", _STYLES.get(event.type, "")


def _format_started(data: Data) -> str:
    failing, checks = int(data.get("red_count", 0)), _join_names(data.get("red_checks"))
    tests = f"; {counted(failing, 'test')} already failing: {_join_names(data.get('red'))}" if failing else ""
    others = f"; checks already failing: {checks}" if checks else ""
    return f"{_format_story_count(data.get('stories', 0))} from commit {_short_commit(data.get('base'))}{tests}{others}"


def _format_story_count(count: Any) -> str:
    return "1 story" if count == 1 else f"{count} stories"


def _format_written(data: Data) -> str:
    return f"tests written and failing as expected: {_join_names(data.get('files'))}"


def _format_committed(data: Data) -> str:
    files = counted(int(data.get("files", 0)), "file")
    return f"attempt {data.get('attempt')}: code of {files}, {_short_commit(data.get('commit'))}"


def _format_checked(data: Data) -> str:
    checks = data.get("checks")
    results = (
        ", ".join(f"{name} {colour}" for name, colour in checks.items()) if isinstance(checks, dict) else ""
    )
    return f"attempt {data.get('attempt')}: checks {'green' if data.get('is_green') else 'red'} ({results})"


def _format_rejected(data: Data) -> str:
    complaints = data.get("complaints") or [""]
    verb = {"test_writer": "tests rejected", "merge": "restarted"}.get(str(data.get("role")), "rejected")
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"attempt {data.get('attempt')}: {verb}: {complaints[0]}{more}"


def _format_passed(data: Data) -> str:
    person = (
        f"accepted by a person ({data['by']}), attempt" if data.get("by") else "accepted by a person, attempt"
    )
    how = person if data.get("is_by_person") else "passed on attempt"
    return f"{how} {data.get('attempt')}, {_short_commit(data.get('commit'))}"


def _format_taken_back(data: Data) -> str:
    reason = f": {data['reason']}" if data.get("reason") else ""
    return f"rejected by a person ({data.get('by')}), taken back from the branch{reason}"


def _short_commit(commit: Any) -> str:
    return str(commit or "")[:12]


def _join_names(names: Any) -> str:
    names = [str(name) for name in names or ()]
    more = f" and {len(names) - _MAX_NAMES_SHOWN} more" if len(names) > _MAX_NAMES_SHOWN else ""
    return ", ".join(names[:_MAX_NAMES_SHOWN]) + more


EVENT_FORMATTERS: Mapping[str, Callable[[Data], str]] = {
    "loop.started": _format_started,
    "story.dispatched": lambda data: f"started at {_short_commit(data.get('base'))}",
    "tests.written": _format_written,
    "code.committed": _format_committed,
    "checks.completed": _format_checked,
    "story.retried": _format_rejected,
    "story.failed": _format_rejected,
    "story.passed": _format_passed,
    "story.rejected": _format_taken_back,
    "story.skipped": lambda data: f"skipped: {data.get('reason')}",
    "story.blocked": lambda data: f"blocked: {data.get('question')}",
    "loop.completed": lambda data: f"the loop has ended: {data.get('reason')}",
    "loop.merged": lambda data: f"{data.get('branch')} is at {_short_commit(data.get('commit'))} now",
    "loop.proposed": lambda data: f"pull request: {data.get('address')}",
    "loop.cancelled": lambda _: "the loop was cancelled",
}
