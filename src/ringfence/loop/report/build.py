"""Builds the report of a loop from its rows and its repository."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence.errors import ConfigurationError, RecordError, RingfenceError
from ringfence.frozen import frozen
from ringfence.loop.configuration import restore_configuration
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.rejection import shorten_list
from ringfence.loop.report.diff import (
    PATCH,
    PatchReader,
    numbers_of,
    read_diff,
    read_rejected,
    read_story,
)
from ringfence.loop.report.model import (
    INTERRUPTED,
    Answer,
    Attempt,
    AttemptKind,
    CheckResult,
    CriterionVerdict,
    Evidence,
    FlaggedFile,
    LoopReport,
    PersonRejection,
    RoleUsage,
    RunReport,
    StoryReport,
    Usage,
)
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import (
    CHECKS,
    CODE,
    DELIVERED,
    JUDGE_STEP,
    REJECTED_BY_PERSON,
    TESTS,
    EventRow,
    LoopRow,
    StepRow,
    StoryRow,
)
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore
from ringfence.loop.story import Plan, Story
from ringfence.sandbox.workspace.protect.flags import flag, reason

MAX_FLAGGED = 50
_PARTS: Mapping[AttemptKind, tuple[str, ...]] = {"tests": TESTS, "code": CODE}
_TURNS: Mapping[AttemptKind, tuple[str, ...]] = {"tests": TESTS, "code": ("code", *CHECKS, *CODE[2:])}
"""The steps that are runs, including checks that not every attempt has."""
_AUTHORS: Mapping[AttemptKind, str] = {"tests": "test_writer", "code": "implementor"}
_ROLES = ("planner", "test_writer", "implementor", "", "reviewer", "judge")
"""Roles in the order of their work; checks have no role."""
_OUTCOMES = ("passed", "failed", "error", "skipped")
_MAX_NAMES = 200
_CHANGES = ("story.passed", "story.rejected")
"""The events that name the new commit of the loop's branch."""


async def build_report(
    directory: LoopDirectory,
    store: LoopStore,
    repository: LoopRepository | None,
    plan: Plan | None,
    *,
    with_diffs: bool = True,
    with_changes: bool = True,
) -> LoopReport:
    """Build the report of a loop in its current state.

    Args:
        directory: The loop's directories.
        store: The loop's rows.
        repository: The loop's repository. None: it was removed, and the report lacks what only it contains.
        plan: The loop's stories. None: they can no longer be read.
        with_diffs: Whether to read the lines that stories changed.
        with_changes: Whether to compare the loop's branch with its base.

    Raises:
        InfrastructureFault: The loop's repository cannot be read.
    """
    row, rows, steps, events = store.loop, store.stories, store.steps(), store.events
    state, settings = state_of(directory, row), settings_of(row)
    tip = await _tip(repository, rows)
    compared = repository if with_changes else None
    diff = await read_diff(compared, row.base, tip) if compared is not None and tip else None
    flagged = _flagged(change.path for change in diff.files) if diff is not None else []
    started = next((event.data for event in events if event.type == "loop.started"), None)
    return LoopReport(
        id=row.id,
        title=plan.title if plan is not None else "",
        source=row.source,
        prd=None if plan is None or plan.source is None else str(plan.source),
        state=state,
        reason=row.reason,
        base=row.base,
        branch=row.branch,
        tip=tip,
        patch=_saved_patch(directory),
        record=row.record_run_id,
        round=row.round,
        created_ms=row.created_ms,
        ended_ms=row.ended_ms,
        red_before=tuple((started or {}).get("red", ())),
        red_before_count=(started or {}).get("red_count", 0),
        stat=numbers_of(diff) if diff is not None else None,
        flagged=tuple(flagged[:MAX_FLAGGED]),
        flagged_count=len(flagged),
        stories=await _stories(store, plan, settings, repository, PatchReader() if with_diffs else None),
        used=_used(steps),
        roles=_roles(steps),
        directory="" if repository is None or repository.inside == Path() else str(repository.inside),
        has_repository=directory.repository_dir.is_dir(),
        is_started=started is not None,
        is_delivered=await _has_users_branch(repository, store, state),
        is_merged=any(event.type == "loop.merged" for event in events),
        outstanding=() if directory.is_worked_on else outstanding(directory, row, settings, events),
    )


def _saved_patch(directory: LoopDirectory) -> str | None:
    """Return the path of the file with all of the loop's work; None if it was not written."""
    patch = directory.path / PATCH
    return str(patch) if patch.is_file() else None


async def _stories(
    store: LoopStore,
    plan: Plan | None,
    settings: LoopSettings,
    repository: LoopRepository | None,
    reader: PatchReader | None,
) -> tuple[StoryReport, ...]:
    """Build the reports of all stories, in order; without a reader their changed lines are left out."""
    known = {story.id: story for story in plan.stories} if plan is not None else {}
    steps, events = store.steps(), store.events
    reports = [
        await _story(_StoryRows.select(row, known.get(row.id), steps, events), settings, repository, reader)
        for row in store.stories
    ]
    return tuple(reports)


def state_of(directory: LoopDirectory, row: LoopRow) -> str:
    """Return a loop's state for display: `interrupted` if it has not ended and no process works on it."""
    return INTERRUPTED if row.state is LoopState.RUNNING and not directory.is_worked_on else row.state.value


def settings_of(row: LoopRow) -> LoopSettings:
    """The settings of a loop; the defaults if another version wrote them, as only the limits are used."""
    try:
        return restore_configuration(row.configuration, loop=row.id)[1]
    except (RecordError, ConfigurationError):
        return LoopSettings()


def outstanding(
    directory: LoopDirectory, row: LoopRow, settings: LoopSettings, events: Iterable[EventRow]
) -> tuple[str, ...]:
    """The options `--merge` and `--pr` that are not carried out yet for the current branch, if the loop has ended."""
    if not row.state.publishes_passed or not directory.repository_dir.is_dir():
        return ()
    last = {event.type: event.number for event in events}
    if "story.passed" not in last:
        return ()
    changed = max(last["story.passed"], last.get("story.rejected", 0))
    requested = (("--merge", settings.merge, "loop.merged"), ("--pr", settings.pr, "loop.proposed"))
    return tuple(option for option, is_set, kind in requested if is_set and last.get(kind, 0) < changed)


def stages(row: StoryRow, steps: Sequence[StepRow]) -> tuple[str, ...]:
    """Return for each of `STAGES`: `ok`, `no` if it was rejected, `...` while it is in progress; empty: not started.

    Args:
        row: The story.
        steps: The story's steps.
    """
    own = _current(row, steps)
    last = max(_numbers(own, "tests"), default=0)
    is_rejected = f"rejected.test_writer.{last}" in own
    tests = "ok" if row.tests_commit is not None else "" if not last else "no" if is_rejected else "..."
    code = [own.get(f"{name}.{row.attempt}") for name in CODE]
    found = ["" if step is None else "..." if step.outcome is None else "ok" for step in code]
    if f"rejected.implementor.{row.attempt}" in own and any(found):
        found[max(position for position, stage in enumerate(found) if stage)] = "no"
    return tests, *found


async def _tip(repository: LoopRepository | None, rows: Sequence[StoryRow]) -> str | None:
    """The commit of the loop's branch, if a story passed."""
    if repository is not None and any(row.is_merged for row in rows):
        with suppress(RingfenceError):
            return await repository.tip()
    return None


async def _has_users_branch(repository: LoopRepository | None, store: LoopStore, state: str) -> bool:
    """Whether the user's repository has the loop's branch; without the loop's repository, by the recorded delivery.

    Unlike `completion.is_delivered`, which asks whether a delivery is outstanding, it is false of a branch that the user
    removed, and of a loop without a passed story: there is nothing to merge then.
    """
    if not any(row.merged_commit for row in store.stories):
        return False
    if repository is None:
        step = store.step(DELIVERED)
        if step is None:  # as by version 0.1, which recorded none
            return state not in (INTERRUPTED, LoopState.RUNNING.value, LoopState.REFUSED.value)
        commits = [event.data.get("commit") for event in store.events if event.type in _CHANGES]
        return bool(step.result["commit"] == next(filter(None, reversed(commits)), None))
    with suppress(RingfenceError):
        return await repository.is_delivered()
    return False


def _flagged(paths: Iterable[str]) -> list[FlaggedFile]:
    """The changed files that are executed or trusted on the user's machine, alternating between the reasons.

    So no file is hidden behind many with another reason.
    """
    seen, ranked = Counter[str](), list[tuple[int, str, str]]()
    for path in flag(paths):
        why = reason(path)
        ranked.append((seen[why], path, why))
        seen[why] += 1
    return [FlaggedFile(path, why) for _, path, why in sorted(ranked)]


def _used(steps: Sequence[StepRow]) -> Usage:
    return Usage(
        calls=sum(step.tries for step in steps if step.role),
        tokens=sum(step.tokens for step in steps),
        cost_usd=sum(step.cost_usd for step in steps),
        seconds=sum(_seconds(step) for step in steps if step.run_id is not None),  # others are bookkeeping
    )


def _seconds(step: StepRow) -> float:
    return 0.0 if step.ended_ms is None else max(0, step.ended_ms - step.started_ms) / 1000


def _roles(steps: Sequence[StepRow]) -> tuple[RoleUsage, ...]:
    """The usage of each role that had a run, and of the checks."""
    runs = {
        role: [step for step in steps if step.role == role and step.run_id is not None] for role in _ROLES
    }
    return tuple(
        RoleUsage(role, tuple(sorted({step.model for step in own if step.model})), _used(own))
        for role, own in runs.items()
        if own
    )


@frozen
class _StoryRows:
    """The rows of one story."""

    row: StoryRow
    story: Story | None
    """The plan; None: the stories can no longer be read."""
    steps: list[StepRow]
    events: list[EventRow]

    @classmethod
    def select(
        cls, row: StoryRow, story: Story | None, steps: Sequence[StepRow], events: Sequence[EventRow]
    ) -> "_StoryRows":
        """A story's rows among those of a loop."""
        return cls(
            row,
            story,
            [step for step in steps if step.story == row.id],
            [event for event in events if event.story == row.id],
        )

    @property
    def criteria(self) -> tuple[str, ...]:
        return self.story.criteria if self.story is not None else ()

    def data(self, kind: str) -> list[Mapping[str, Any]]:
        """The data of its events of one type, in order."""
        return [event.data for event in self.events if event.type == kind]

    @property
    def passed(self) -> Mapping[str, Any]:
        """The data of the event with which it passed; empty if it has not."""
        found = self.data("story.passed") if self.row.state is StoryState.PASSED else []
        return found[-1] if found else {}


async def _story(
    rows: _StoryRows, settings: LoopSettings, repository: LoopRepository | None, reader: PatchReader | None
) -> StoryReport:
    row, story, attempts, stat = rows.row, rows.story, _attempts(rows), None
    if reader is not None:
        stat = await read_story(repository, row, reader) if repository is not None else None
        attempts = [
            replace(each, stat=await read_rejected(each.patch, reader)) if each.patch is not None else each
            for each in attempts
        ]
    return StoryReport(
        id=row.id,
        title=story.title if story is not None else "",
        state=row.state.value,
        stage=row.stage,
        stages=stages(row, rows.steps),
        reason=row.reason,
        answer=row.answer,
        depends_on=story.depends_on if story is not None else (),
        attempt=row.attempt,
        tests_attempt=max(_numbers(_current(row, rows.steps), "tests"), default=0),
        max_attempts=settings.attempts,
        generation=row.generation,
        criteria=_criteria_of(rows, attempts),
        merged=row.merged_commit,
        stat=stat,
        attempts=tuple(attempts),
        used=_used(rows.steps),
        outside=tuple(rows.passed.get("outside", ())),
        outside_count=rows.passed.get("outside_count", 0),
    )


def _criteria_of(rows: _StoryRows, attempts: Sequence[Attempt]) -> tuple[CriterionVerdict, ...]:
    """The story's criteria with the verdict on its current attempt, which is the accepted one if the story passed."""
    current = ("code", rows.row.generation, rows.row.attempt)
    found = (each.verdict for each in attempts if (each.kind, each.generation, each.number) == current)
    return next(found, ()) or _criteria(rows.criteria, None)


def _current(row: StoryRow, steps: Iterable[StepRow]) -> Mapping[str, StepRow]:
    """A story's steps since it was last started, by name."""
    return {step.name: step for step in steps if step.generation == row.generation}


def _numbers(own: Iterable[str], kind: str) -> list[int]:
    """The numbers of the attempts of one kind, by the names of the steps."""
    parts = (name.split(".") for name in own)
    return sorted(int(each[1]) for each in parts if each[0] == kind and len(each) == 2)


def _attempts(rows: _StoryRows) -> list[Attempt]:
    """All attempts in order, without the diffs of rejected work."""
    checked = rows.data("checks.completed")
    overtaken = iter([data for data in rows.data("story.retried") if data.get("role") == "merge"])
    found = list[Attempt]()
    for generation in sorted({step.generation for step in rows.steps}):
        own = {step.name: step for step in rows.steps if step.generation == generation}
        for kind in _PARTS:
            found += [
                _attempt(kind, number, generation, own, rows.criteria, checked)
                for number in _numbers(own, kind)
            ]
        is_earlier, step = generation < rows.row.generation, own.get(REJECTED_BY_PERSON)
        if step is not None:
            found = [_with_decision(each, step) for each in found]
        elif is_earlier and found and (found[-1].kind, found[-1].state) == ("code", "accepted"):
            # It conflicted with later commits of the loop's branch, or a person restarted the story.
            why = next(overtaken, {}).get("complaints") or ("the story was restarted",)
            found[-1] = replace(found[-1], state="rejected", complaints=tuple(map(str, why)))
    return found


def _with_decision(attempt: Attempt, step: StepRow) -> Attempt:
    """Mark an attempt as rejected if a person rejected it in this step; return another attempt unchanged."""
    if (attempt.kind, attempt.generation, attempt.number) != ("code", step.generation, step.attempt):
        return attempt
    result, at_ms = step.result, step.ended_ms or step.started_ms
    decision = PersonRejection(str(result.get("by")), str(result.get("reason", "")), at_ms)
    patch = attempt.patch or result.get("patch")
    return replace(attempt, state="rejected", rejected_by=decision, patch=patch)


def _attempt(
    kind: AttemptKind,
    number: int,
    generation: int,
    own: Mapping[str, StepRow],
    criteria: Sequence[str],
    checked: list[Mapping[str, Any]],
) -> Attempt:
    parts = {name: own[f"{name}.{number}"] for name in _PARTS[kind] if f"{name}.{number}" in own}
    made = _result(own.get(f"{kind}.{number}.commit"))
    rejected = own.get(f"rejected.{_AUTHORS[kind]}.{number}")
    last = parts.get(_PARTS[kind][-1])
    is_over = last is not None and last.outcome is not None
    checks = parts.get("red" if kind == "tests" else "checks")
    verdict = _answer(parts.get(JUDGE_STEP)).get("verdict")
    return Attempt(
        kind=kind,
        generation=generation,
        number=number,
        state="rejected" if rejected is not None else "accepted" if is_over else "under way",
        turns=tuple(_turn(own[f"{name}.{number}"]) for name in _TURNS[kind] if f"{name}.{number}" in own),
        checks=_checks(checks, _take_colours(checked, number) if kind == "code" and checks else {}),
        review=tuple(
            Answer(each["id"], each["answer"], each["evidence"])
            for each in _answer(parts.get("review")).get("questions", ())
        ),
        verdict=_criteria(criteria, verdict) if verdict else (),
        complaints=tuple(_result(rejected).get("complaints", ())),
        commit=made.get("commit"),
        patch=_result(rejected).get("patch"),
        files=tuple(made.get("files", ()))[:_MAX_NAMES],
        left_out=tuple(shorten_list(made.get("left_out", ()), _MAX_NAMES)),
        configuration=tuple(made.get("configuration", ()))[:_MAX_NAMES],
        stat=None,
    )


def _result(step: StepRow | None) -> Mapping[str, Any]:
    return step.result if step is not None else {}


def _answer(step: StepRow | None) -> Mapping[str, Any]:
    return _result(step).get("answer") or {}


def _take_colours(checked: list[Mapping[str, Any]], number: int) -> Mapping[str, str]:
    """The colour of each check in the next attempt with this number; events are in the order of attempts."""
    for position, data in enumerate(checked):
        if data["attempt"] == number:
            colours: Mapping[str, str] = checked.pop(position)["checks"]
            return colours
    return {}


def _turn(step: StepRow) -> RunReport:
    used = Usage(step.tries if step.role else 0, step.tokens, step.cost_usd, _seconds(step))
    words = _answer(step).get("summary") or ""
    return RunReport(step.name, step.role, step.model, step.run_id, step.outcome, step.tries, used, words)


def _checks(step: StepRow | None, colours: Mapping[str, str]) -> tuple[CheckResult, ...]:
    """The results of a run of checks."""
    reports = _result(step).get("reports", {})
    return tuple(
        CheckResult(name, colours.get(name, ""), _counts(report)) for name, report in reports.items()
    )


def _counts(report: Mapping[str, Any]) -> str:
    counts = Counter(each["outcome"] for each in report["results"].values())
    if not counts:
        is_exit = report["ended_by"] == "exit"
        ended_by = report.get("run_state") or report["ended_by"]
        return f"exit code {report['exit_code']}" if is_exit else f"ended by {ended_by}"
    words = [f"{counts[name]} {name}" for name in _OUTCOMES if counts[name]]
    return ", ".join([*words, *([] if report["is_complete"] else ["not complete"])])


def _criteria(criteria: Sequence[str], verdict: Mapping[str, Any] | None) -> tuple[CriterionVerdict, ...]:
    """A story's criteria with the judge's verdict on each; None: there is no verdict."""
    texts = dict(enumerate(criteria, start=1))
    given = {each["criterion"]: each for each in verdict["criteria"]} if verdict else {}
    found = list[CriterionVerdict]()
    for number in sorted({*texts, *given}):
        each = given.get(number, {"verdict": None, "reason": "", "evidence": ()})
        evidence = tuple(Evidence(**item) for item in each["evidence"])
        found.append(
            CriterionVerdict(number, texts.get(number, ""), each["verdict"], each["reason"], evidence)
        )
    return tuple(found)
