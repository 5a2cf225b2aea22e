"""Gathers a loop's report from its rows and its repository."""

from collections.abc import Sequence

from ringfence.errors import ConfigurationError, RecordError
from ringfence.loop.loading import brought_back
from ringfence.loop.place import LoopPlace
from ringfence.loop.report.attempts import attempts_of, unjudged
from ringfence.loop.report.model import INTERRUPTED, LoopReport, Stat, StoryReport, Used
from ringfence.loop.report.outstanding import outstanding
from ringfence.loop.report.stages import stages, tests_attempt
from ringfence.loop.report.statistics import MOST_FLAGGED, flagged_of, span_of, stat_of
from ringfence.loop.repository import LoopRepository
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store.loops import LoopStore
from ringfence.loop.store.rows import EventRow, LoopRow, StepRow, StoryRow
from ringfence.loop.story import Plan, Story

PATCH = "loop.patch"


async def gather(
    place: LoopPlace, store: LoopStore, repository: LoopRepository | None, plan: Plan | None
) -> LoopReport:
    """The report of a loop as it stands.

    Args:
        place: Its place.
        store: Its rows.
        repository: Its repository; None: it was removed, and what only it knows is left out.
        plan: Its stories; None: they cannot be read any more.

    Raises:
        UsageError: There is no such loop.
        InfrastructureFault: Its database cannot be read.
    """
    row, rows, steps, events = (
        await store.get(),
        await store.stories(),
        await store.steps(),
        await store.events(),
    )
    settings = settings_of(row)
    passed = [each for each in rows if each.state is StoryState.PASSED and each.merged]
    tip = await repository.tip() if repository is not None and passed else None
    patch = place.directory / PATCH
    started = next((event for event in events if event.type == "loop.started"), None)
    known = {story.id: story for story in plan.stories} if plan is not None else {}
    stories = [await _story(repository, settings, each, known.get(each.id), steps, events) for each in rows]
    flagged = await flagged_of(repository, row.base, tip)
    return LoopReport(
        id=row.id,
        title=plan.title if plan is not None else "",
        source=row.source,
        prd=None if plan is None or plan.source is None else str(plan.source),
        state=state_of(place, row),
        reason=row.reason,
        base=row.base,
        branch=row.branch,
        tip=tip,
        patch=str(patch) if patch.is_file() else None,
        record=row.record,
        round=row.round,
        created_ms=row.created_ms,
        ended_ms=row.ended_ms,
        most_calls=settings.limits.agent_calls,
        most_tokens=settings.limits.tokens,
        most_cost_usd=settings.limits.cost_usd,
        red_before=tuple(map(str, started.data.get("red", ()))) if started is not None else (),
        red_before_count=int(started.data.get("red_count", 0)) if started is not None else 0,
        stat=await stat_of(repository, row.base, tip),
        flagged=tuple(flagged[:MOST_FLAGGED]),
        flagged_count=len(flagged),
        stories=tuple(stories),
        used=used_by(steps),
        has_clones=place.clones.is_dir(),
        is_started=started is not None,
        is_merged=any(event.type == "loop.merged" for event in events),
        outstanding=() if place.is_worked_on else outstanding(place, row, settings, events),
    )


def state_of(place: LoopPlace, row: LoopRow) -> str:
    """A loop's state as people see it: one that nobody works on was interrupted."""
    if row.state is LoopState.RUNNING and not place.is_worked_on:
        return INTERRUPTED
    return row.state.value


def used_by(steps: Sequence[StepRow]) -> Used:
    """What steps took."""
    return Used(
        calls=sum(step.tries for step in steps if step.role),
        tokens=sum(step.tokens for step in steps),
        cost_usd=sum(step.cost_usd for step in steps),
        seconds=sum(
            max(0, step.ended_ms - step.began_ms)
            for step in steps
            if step.ended_ms is not None and step.run_id is not None  # others are bookkeeping, and done again
        )
        / 1000,
    )


def settings_of(row: LoopRow) -> LoopSettings:
    """What holds for a loop; the defaults where another version wrote it down."""
    try:
        return brought_back(row.configuration, loop=row.id)[1]
    except (RecordError, ConfigurationError):  # of another version; only bounds are taken from it
        return LoopSettings()


async def _story(
    repository: LoopRepository | None,
    settings: LoopSettings,
    row: StoryRow,
    story: Story | None,
    steps: list[StepRow],
    events: list[EventRow],
) -> StoryReport:
    own = [step for step in steps if step.story == row.id]
    criteria = story.criteria if story is not None else ()
    attempts = await attempts_of(
        repository, row, criteria, own, [each for each in events if each.story == row.id]
    )
    passed = [each.data for each in events if each.story == row.id and each.type == "story.passed"]
    outside = passed[-1] if passed and row.state is StoryState.PASSED else {}
    judged = [attempt for attempt in attempts if attempt.verdict]
    return StoryReport(
        id=row.id,
        title=story.title if story is not None else "",
        state=row.state.value,
        stage=row.stage,
        stages=stages(row, own),
        reason=row.reason,
        answer=row.answer,
        depends_on=story.depends_on if story is not None else (),
        attempt=row.attempt,
        tests_attempt=tests_attempt(row, own),
        most_attempts=settings.attempts,
        generation=row.generation,
        criteria=judged[-1].verdict if judged else unjudged(criteria),
        merged=row.merged,
        stat=await _merged_stat(repository, row),
        attempts=attempts,
        used=used_by(own),
        outside=tuple(map(str, outside.get("outside", ()))),
        outside_count=int(outside.get("outside_count", 0)),
    )


async def _merged_stat(repository: LoopRepository | None, row: StoryRow) -> Stat | None:
    if repository is None or row.base is None or row.tip is None or row.merged is None:
        return None
    span = await span_of(repository, row.base, row.tip, row.merged)
    return None if span is None else await stat_of(repository, *span)
