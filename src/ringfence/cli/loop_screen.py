"""A loop at work on a terminal: a table that stays below, its lines above it. Drawn anew only where it differs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ringfence.cli.doing import Doing
from ringfence.cli.escape import visible
from ringfence.cli.loop_table import Row, attempt_of, stories_table
from ringfence.cli.spending import Spending
from ringfence.events import ModelExchanged, ModelReplied
from ringfence.loop.report.figures import duration
from ringfence.loop.report.gathering import used_by
from ringfence.loop.report.model import Used
from ringfence.loop.report.stages import stages, tests_attempt, working
from ringfence.loop.state import StoryState

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from ringfence.events import Event
    from ringfence.loop.store.rows import StepRow, StoryRow

_MOST_RUNS = 64
_OTHER_LINES = 6
"""Of a terminal's that the table leaves: its head, its last line, room for what stands above."""
_LEAST_ROWS = 3


class _Run:
    """What is known of a run beyond its rows."""

    def __init__(self) -> None:
        from ringfence.runtime.limits import Limits

        self.doing = Doing()
        self.spending = Spending(Limits())


class LoopScreen:
    """Keeps the table up to date.

    Args:
        console: Of a terminal.
        attempts: At a story's code, the most.
        titles: Of the stories.
    """

    def __init__(self, console: "Console", *, attempts: int, titles: "Mapping[str, str]") -> None:
        self._console = console
        self._attempts = attempts
        self._titles = titles
        self._runs: dict[str, _Run] = {}
        self._live: Live | None = None
        self._drawn: object = None

    def take(self, run_id: str, event: "Event") -> None:
        """Note what happened in a run."""
        run = self._runs.setdefault(run_id, _Run())
        while len(self._runs) > _MOST_RUNS:
            self._runs.pop(next(iter(self._runs)))
        run.doing.take(event)
        if isinstance(event, ModelReplied | ModelExchanged):
            run.spending.take(event)

    def draw(self, stories: "Sequence[StoryRow]", steps: "Sequence[StepRow]", *, now_ms: int) -> None:
        """Show how they stand.

        Args:
            stories: The loop's.
            steps: Theirs; their results are not needed.
            now_ms: The wall clock.
        """
        from rich.live import Live

        at_work = working(steps)
        rows = [self._row(story, steps, at_work.get(story.id), now_ms) for story in stories]
        lines = [self._words(step, now_ms) for step in at_work.values()]
        content = (rows, [line.plain for line in lines], self._console.size)
        if content == self._drawn:
            return
        self._drawn = content
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._picture(stories, rows, lines), refresh=True)

    def end(self) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()
        self._live = self._drawn = None

    def _picture(self, stories: "Sequence[StoryRow]", rows: "list[Row]", lines: "list[Text]") -> "Group":
        from rich.console import Group

        room = max(_LEAST_ROWS, self._console.height - len(lines) - _OTHER_LINES)
        shown = [row for _, row in _fitting([*zip(stories, rows, strict=True)], room)]
        return Group(stories_table(shown, width=self._console.width, hidden=len(rows) - len(shown)), *lines)

    def _row(
        self, story: "StoryRow", steps: "Sequence[StepRow]", step: "StepRow | None", now_ms: int
    ) -> "Row":
        own = [each for each in steps if each.story == story.id]
        used = used_by(own)
        if step is not None:
            run = self._runs.get(step.run_id or "")
            tokens, cost = run.spending.known if run is not None else (0, 0.0)
            at_work = max(0, now_ms - step.began_ms) // 1000
            used = Used(used.calls, used.tokens + tokens, used.cost_usd + cost, used.seconds + at_work)
        attempt = attempt_of(story.attempt or tests_attempt(story, own), self._attempts)
        title = self._titles.get(story.id, "")
        return Row(story.id, title, story.state.value, attempt, stages(story, own), used)

    def _words(self, step: "StepRow", now_ms: int) -> "Text":
        """What the story's run does: ours first, then a line of the agent's."""
        from rich.text import Text

        run = self._runs.get(step.run_id or "")
        words = run.doing.words if run is not None else ""
        who = step.role.replace("_", " ") or "checks"
        seconds = duration(max(0, now_ms - step.began_ms) // 1000)
        line = f"  {step.story}  {who}  {seconds}  {words.expandtabs(4)}"
        return Text(visible(line, one_line=True), style="dim", no_wrap=True, overflow="ellipsis")


def _fitting(pairs: "list[tuple[StoryRow, Row]]", room: int) -> "list[tuple[StoryRow, Row]]":
    """As many as there is room for: those that are worked on, then those to come, then the last that ended."""
    if len(pairs) <= room:
        return pairs
    ranks = {StoryState.RUNNING: 0, StoryState.BLOCKED: 1, StoryState.WAITING: 2}
    ranked = sorted(
        pairs,
        key=lambda pair: (
            ranks.get(pair[0].state, 3),
            -pair[0].position if pair[0].state.is_end else pair[0].position,
        ),
    )
    chosen = {story.id for story, _ in ranked[: room - 1]}
    return [pair for pair in pairs if pair[0].id in chosen]
