"""Gathers a loop's report from its rows and its repository."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ringfence.errors import ConfigurationError, RecordError, RingfenceError
from ringfence.loop.loading import brought_back
from ringfence.loop.place import LoopPlace
from ringfence.loop.report.attempts import attempts_of, criteria_of, stages, tests_attempt
from ringfence.loop.report.diff import PatchReader
from ringfence.loop.report.model import (
    INTERRUPTED,
    Attempt,
    FlaggedFile,
    LoopReport,
    RoleUsed,
    StoryReport,
    Used,
)
from ringfence.loop.report.outstanding import outstanding
from ringfence.loop.report.patches import PATCH, compare_commits, read_rejected, read_story, stat_of
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import EventRow, LoopRow, StepRow, StoryRow
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore
from ringfence.loop.story import Plan, Story
from ringfence.sandbox.workspace.protect.flags import flag, reason

MAX_FLAGGED = 50
_ROLES = ("planner", "test_writer", "implementor", "", "reviewer", "judge")
"""In the order of their work; checks have no role."""


async def gather(
    place: LoopPlace,
    store: LoopStore,
    repository: LoopRepository | None,
    plan: Plan | None,
    *,
    with_diffs: bool = True,
) -> LoopReport:
    """The report of a loop as it stands.

    Args:
        place: Its place.
        store: Its rows.
        repository: Its repository; None: it was removed, and what only it knows is left out.
        plan: Its stories; None: they cannot be read any more.
        with_diffs: Whether the lines that stories changed are read, too.

    Raises:
        UsageError: There is no such loop.
        InfrastructureFault: Its database cannot be read.
    """
    row, rows, steps, events = (
        store.loop,
        store.stories,
        store.steps(),
        store.events,
    )
    settings = settings_of(row)
    tip = await _tip(repository, rows)
    diff = await compare_commits(repository, row.base, tip) if repository is not None and tip else None
    flagged = flagged_of(change.path for change in diff.files) if diff is not None else []
    patch = place.directory / PATCH
    started = next((event for event in events if event.type == "loop.started"), None)
    told = started.data if started is not None else {}
    known = {story.id: story for story in plan.stories} if plan is not None else {}
    reader = PatchReader() if with_diffs else None
    stories = [
        await _story(repository, settings, each, known.get(each.id), steps, events, reader) for each in rows
    ]
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
        red_before=tuple(told.get("red", ())),
        red_before_count=told.get("red_count", 0),
        stat=stat_of(diff) if diff is not None else None,
        flagged=tuple(flagged[:MAX_FLAGGED]),
        flagged_count=len(flagged),
        stories=tuple(stories),
        used=used_by(steps),
        roles=roles_of(steps),
        directory="" if repository is None or repository.inside == Path() else str(repository.inside),
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


def roles_of(steps: Sequence[StepRow]) -> tuple[RoleUsed, ...]:
    """What each role that had a run took, and the checks."""
    found = list[RoleUsed]()
    for role in _ROLES:
        runs = [step for step in steps if step.role == role and step.run_id is not None]
        if runs:
            models = tuple(sorted({step.model for step in runs if step.model}))
            found.append(RoleUsed(role, models, used_by(runs)))
    return tuple(found)


def settings_of(row: LoopRow) -> LoopSettings:
    """What holds for a loop; the defaults where another version wrote it down."""
    try:
        return brought_back(row.configuration, loop=row.id)[1]
    except (RecordError, ConfigurationError):  # of another version; only bounds are taken from it
        return LoopSettings()


def flagged_of(paths: Iterable[str]) -> list[FlaggedFile]:
    """Which changed files run, or are trusted, on the user's machine: none is hidden behind many of another reason."""
    seen, ranked = Counter[str](), list[tuple[int, str, str]]()
    for path in flag(paths):
        why = reason(path)
        ranked.append((seen[why], path, why))
        seen[why] += 1
    return [FlaggedFile(path, why) for _, path, why in sorted(ranked)]


async def _tip(repository: LoopRepository | None, rows: Sequence[StoryRow]) -> str | None:
    """The commit of the loop's branch, if something passed."""
    if repository is not None and any(row.state is StoryState.PASSED and row.merged for row in rows):
        with suppress(RingfenceError):
            return await repository.tip()
    return None


async def _story(
    repository: LoopRepository | None,
    settings: LoopSettings,
    row: StoryRow,
    story: Story | None,
    steps: list[StepRow],
    events: list[EventRow],
    reader: PatchReader | None,
) -> StoryReport:
    own, told = (
        [each for each in steps if each.story == row.id],
        [each for each in events if each.story == row.id],
    )
    criteria = story.criteria if story is not None else ()
    attempts, stat = attempts_of(row, criteria, own, told), None
    if reader is not None:
        stat = await read_story(repository, row, reader) if repository is not None else None
        attempts = tuple([await _with_diff(attempt, reader) for attempt in attempts])
    passed = [each.data for each in told if each.type == "story.passed"]
    last = passed[-1] if passed and row.state is StoryState.PASSED else {}
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
        criteria=judged[-1].verdict if judged else criteria_of(criteria, None),
        merged=row.merged,
        stat=stat,
        attempts=attempts,
        used=used_by(own),
        outside=tuple(last.get("outside", ())),
        outside_count=last.get("outside_count", 0),
        is_by_person=last.get("is_by_person", False),
    )


async def _with_diff(attempt: Attempt, reader: PatchReader) -> Attempt:
    if attempt.patch is None:
        return attempt
    return replace(attempt, stat=await read_rejected(attempt.patch, reader))
