"""Schedules the stories of a loop, merges those whose attempt was accepted, and decides how the loop ends."""

from collections.abc import Mapping
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from ringfence.errors import RingfenceError
from ringfence.job.outcome import keep_crash, outcome_of, root_cause
from ringfence.loop.acceptance import Acceptance
from ringfence.loop.attempt import StoryRunner
from ringfence.loop.check_runner import CheckRunner, merged
from ringfence.loop.completion import finish_loop
from ringfence.loop.exceptions import LoopStopped
from ringfence.loop.loop import Loop
from ringfence.loop.repository import Conflict, Merged
from ringfence.loop.rows import ACCEPTED_BY_PERSON, MAX_LISTED, StoryRow, code_steps
from ringfence.loop.state import LoopEnd, LoopState, StoryState
from ringfence.loop.story import Ready, ready
from ringfence.loop.story_commits import StoryCommits


class LoopScheduler:
    """Schedules and merges the stories of a loop.

    Args:
        loop: The loop.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._active: set[str] = set()
        """Ids of the stories that a task works on."""
        self._wake = anyio.Event()
        """Set when there is something to merge or dispatch."""
        self._end: LoopEnd | None = None
        """How the loop ends, as decided by the first story that ends it."""

    async def run(self) -> None:
        """Work on all stories, deliver those that passed, and record the loop's end.

        Every step can be repeated: a loop whose process died continues at the step that was interrupted.
        """
        try:
            await self._check_base()
            await self._work_stories()
            end = self._final_state()
        except LoopStopped as exc:
            end = exc.end
        loop = self._loop
        finished = await finish_loop(
            loop.directory, loop.store, loop.repository, loop.plan, end, redactor=loop.redactor
        )
        if finished.report_problem is not None:
            loop.runs.notify(finished.report_problem)

    async def _check_base(self) -> None:
        """Run all checks on the loop's base.

        Raises:
            LoopStopped: The checks cannot be run, or tests fail and the setting `baseline` is `refuse`.
        """
        loop, base = self._loop, self._loop.store.loop.base
        reports = await CheckRunner(loop, StoryCommits(loop, 0)).run_base_checks(base)
        suite = merged([report for name, report in reports.items() if name in loop.test_check_names])
        red = [each.id for each in suite.red()]
        if not suite.is_complete:
            problems = "; ".join(suite.problems)[:1000]
            reason = (
                f"the tests cannot be run on {base[:12]}; see `loop.checks` and `sandbox.setup`: {problems}"
            )
            raise LoopStopped(LoopEnd(LoopState.CONFIGURATION, reason))
        if red and loop.settings.baseline == "refuse":
            count = "1 test fails" if len(red) == 1 else f"{len(red)} tests fail"
            reason = (
                f"{count} before the loop starts; mend and commit them, or start another loop with `--baseline record`, "
                f"so that only new failures count: {', '.join(red[:MAX_LISTED])}"
            )
            raise LoopStopped(LoopEnd(LoopState.CONFIGURATION, reason))
        others = {name: report for name, report in reports.items() if name not in loop.test_check_names}
        loop.store.add_event(
            "started", "loop.started", base=base, stories=len(loop.plan.stories), red=red[:MAX_LISTED],
            red_count=len(red), red_checks=sorted(name for name, report in others.items() if not report.is_green),
        )  # fmt: skip

    async def _work_stories(self) -> None:
        """Work on stories until no story is left that can be worked on.

        Raises:
            LoopStopped: The loop ends earlier; all work on stories has ended by then.
        """
        async with anyio.create_task_group() as tasks:
            try:
                while await self._dispatch(tasks):
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    if self._end is not None:
                        raise LoopStopped(self._end)
                    await self._merge_accepted()
            except LoopStopped as exc:
                self._end = exc.end
                self._loop.runs.stop_gracefully()
        if self._end is not None:
            raise LoopStopped(self._end)

    async def _dispatch(self, tasks: TaskGroup) -> bool:
        """Start stories that are ready while there are free worktrees. Return whether any story is worked on.

        Raises:
            LoopStopped: There is work left, but a limit, a deadline or a cancellation forbids it.
        """
        loop, store = self._loop, self._loop.store
        rows = {row.id: row for row in store.stories}
        running = [row for row in rows.values() if row.state is StoryState.RUNNING]
        ready_stories = _ready(loop, rows)
        for name, reason in ready_stories.skipped.items():
            with store.transaction():
                row = store.update_story(name, state=StoryState.SKIPPED, reason=reason)
                loop.add_event(row, "ended", "story.skipped", reason=reason)
        for name, reason in ready_stories.blocked.items():
            with store.transaction():
                row = store.update_story(name, state=StoryState.BLOCKED, reason=reason)
                loop.add_event(row, "ended", "story.blocked", question=reason)
        free = sorted(set(range(loop.settings.parallel)) - {row.slot for row in running})
        chosen_slots = list(zip(ready_stories.stories, free, strict=False))
        # A loop whose last story used up a limit has succeeded: only further work is refused.
        if chosen_slots:
            loop.check_agent_may_run()
        elif running:
            loop.check_not_stopped()
        for chosen, number in chosen_slots:
            base = rows[chosen.id].base or await loop.repository.tip()
            with store.transaction():
                row = store.update_story(
                    chosen.id, state=StoryState.RUNNING, slot=number, stage="tests", reason="", base=base
                )
                loop.add_event(row, "dispatched", "story.dispatched", base=base, slot=number)
            running.append(row)
        for row in running:
            if row.stage == "merge":
                self._wake.set()  # its work is done: merge it without waiting for another story
            elif row.id not in self._active:
                self._active.add(row.id)
                tasks.start_soon(self._run_story, row.id)
        return bool(running)

    async def _run_story(self, story: str) -> None:
        """Work on one story. An unexpected error ends the loop in the state `infrastructure`."""
        try:
            await StoryRunner(self._loop, story).run()
        except LoopStopped as exc:
            self._end = self._end or exc.end
        except Exception as exc:  # noqa: BLE001 -- the work on other stories ends in order
            self._end = self._end or self._failure(story, exc)
        self._active.discard(story)
        self._wake.set()

    def _failure(self, story: str, error: Exception) -> LoopEnd:
        """Return how an unexpected error ends the loop; keep the traceback of a bug in the loop's directory."""
        cause, file, problem = root_cause(error), None, None
        if not isinstance(cause, RingfenceError):
            file, problem = keep_crash(error, self._loop.directory.path, self._loop.redactor)
        reason = f"the work on story {story} failed: {outcome_of(cause, kept_in=file).reason}"
        return LoopEnd(LoopState.INFRASTRUCTURE, f"{reason}; {problem}" if problem else reason)

    def _final_state(self) -> LoopEnd:
        """Return how a loop ends that has no work left."""
        rows = self._loop.store.stories
        ids_by_state = {state: [row.id for row in rows if row.state is state] for state in StoryState}
        if len(ids_by_state[StoryState.PASSED]) == len(rows):
            passed = "the story passed" if len(rows) == 1 else f"all {len(rows)} stories passed"
            return LoopEnd(LoopState.SUCCEEDED, f"{passed}{self._accepted_failing()}")
        counts = ", ".join(f"{len(names)} {state.value}" for state, names in ids_by_state.items() if names)
        counts += self._accepted_failing()
        if ids_by_state[StoryState.BLOCKED] and not ids_by_state[StoryState.SKIPPED]:
            return LoopEnd(
                LoopState.BLOCKED,
                f"{counts}; answer their questions with `ringfence loop retry STORY --answer TEXT`",
            )
        return LoopEnd(LoopState.INCOMPLETE, counts)

    def _accepted_failing(self) -> str:
        """Count the stories that persons accepted although checks failed, as the end of the loop's reason."""
        persons = list[str]()
        for row in self._loop.store.stories:
            step = self._loop.store.step(row.key(ACCEPTED_BY_PERSON))
            if row.is_merged and step is not None and step.result.get("is_failing"):
                persons.append(str(step.result.get("by")))
        names = ", ".join(sorted({*persons}))
        return f"; {len(persons)} accepted by {names} with failing checks" if persons else ""

    async def _merge_accepted(self) -> None:
        """Merge accepted stories into the loop's branch, one after another.

        Raises:
            LoopStopped: A check that the merge needs cannot be run.
        """
        for row in self._loop.store.stories:
            if row.state is StoryState.RUNNING and row.stage == "merge":
                await self._merge(row)

    async def _merge(self, row: StoryRow) -> None:
        assert row.code_commit is not None
        assert row.slot is not None
        loop, store, commits = self._loop, self._loop.store, StoryCommits(self._loop, row.slot)
        check_runner = CheckRunner(loop, commits)
        tip, found = row.code_commit, await loop.repository.fast_forward_or_rebase(row.code_commit)
        accepted = store.step(row.key(ACCEPTED_BY_PERSON))
        is_by_person = accepted is not None and accepted.result.get("commit") == row.code_commit
        while not isinstance(found, Merged):
            if isinstance(found, Conflict):
                why = f"its changes conflict with stories merged meanwhile: {', '.join(found.paths[:MAX_LISTED])}"
                return self._restart(row, why)
            tip = found.tip
            if not is_by_person:
                complaints, _ = await Acceptance(loop, commits, check_runner).check_candidate(
                    row, f"merge.{tip}", tip
                )
                if complaints:
                    return self._restart(
                        row, f"together with stories merged meanwhile: {complaints[0][:1000]}"
                    )
            found = await loop.repository.fast_forward_or_rebase(tip)
        outside = await commits.outside(row)
        # An attempt that a person accepts already has an event with the key `ended`.
        ended = "accepted" if is_by_person else "ended"
        accepted_by = str(accepted.result.get("by") or "") if accepted is not None and is_by_person else ""
        is_failing = accepted is not None and bool(accepted.result.get("is_failing"))
        reason = _acceptance_reason(accepted_by, is_failing=is_failing) if is_by_person else ""
        with store.transaction():
            if found.tip == tip:
                name = f"checks.{row.attempt}" if tip == row.code_commit else f"merge.{tip}"
                check_runner.keep_as_base(row.key(name), tip)
            store.update_story(
                row.id, state=StoryState.PASSED, merged_commit=found.tip, stage="", reason=reason
            )
            loop.add_event(
                row, ended, "story.passed", of=[*code_steps(row.attempt), f"merge.{tip}"], attempt=row.attempt,
                commit=found.tip, outside=outside[:MAX_LISTED], outside_count=len(outside), is_by_person=is_by_person,
                by=accepted_by,
            )  # fmt: skip
        return None

    def _restart(self, row: StoryRow, reason: str) -> None:
        """Start a story again from the branch's tip, or skip it if it was started as often as it has attempts."""
        loop, store = self._loop, self._loop.store
        with store.transaction():
            if row.generation >= loop.settings.attempts:
                store.update_story(row.id, state=StoryState.SKIPPED, reason=reason, stage="")
                loop.add_event(row, "ended", "story.skipped", reason=reason)
                return
            loop.add_event(
                row, "anew", "story.retried", of=code_steps(row.attempt), attempt=row.attempt, role="merge",
                complaints=[reason],
            )  # fmt: skip
            store.update_story(
                row.id, state=StoryState.WAITING, generation=row.generation + 1, attempt=0, stage="", base=None,
                tests_commit=None, code_commit=None, reason=reason,
            )  # fmt: skip


def _acceptance_reason(person: str, *, is_failing: bool) -> str:
    """Return the reason of a story that a person accepted."""
    reason = f"accepted by a person ({person})" if person else "accepted by a person"
    return f"{reason} with failing checks" if is_failing else reason


def _ready(loop: Loop, rows: Mapping[str, StoryRow]) -> Ready:
    """Return the stories that can be started. Whether a story waits for a person is decided by its row, not the plan."""
    ids_by_state = {state: [row.id for row in rows.values() if row.state is state] for state in StoryState}
    asked = {row.id: row.reason or "?" for row in rows.values() if row.state is StoryState.BLOCKED}
    stories = tuple(replace(story, question=asked.get(story.id)) for story in loop.plan.stories)
    found = ready(
        replace(loop.plan, stories=stories),
        done=ids_by_state[StoryState.PASSED],
        skipped=ids_by_state[StoryState.SKIPPED],
        running=ids_by_state[StoryState.RUNNING],
    )
    return replace(found, blocked={name: why for name, why in found.blocked.items() if name not in asked})
