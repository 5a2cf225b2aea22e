"""The steps of a loop as a whole: what is worked on next, what passed is merged, what is done is delivered."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ringfence.loop.machine.gate import merged
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.stop import Stop
from ringfence.loop.machine.stories import Stories
from ringfence.loop.report.files import write_report
from ringfence.loop.repository import Conflict, DeliveryRefused, Merged, RepositoryRefused
from ringfence.loop.rows import ACCEPTED, StoryRow, code_steps
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.story import Ready, ready

Json = dict[str, Any]
_SHOWN = 20


class Whole:
    """What is done about a loop.

    Args:
        loop: It.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._stories = Stories(loop)
        self._at_work: set[str] = set()
        """Stories that a task works on."""
        self._ended = anyio.Event()
        """Set whenever one of them came to an end."""
        self._stop: Json | None = None
        """How the loop ends, by the first story that ends it."""

    async def work(self) -> None:
        """Work all stories through, deliver what passed and write down the end.

        Each step can be repeated: a loop whose process died goes on at the step that was interrupted.
        """
        answer = await self._start()
        async with anyio.create_task_group() as tasks:
            while answer["next"] == "on":
                answer = await self._dispatch(tasks)
                if answer["next"] == "on":
                    answer = await self._wait()
                if answer["next"] == "on":
                    answer = await self._merge_all()
        await self._complete(answer)

    async def _start(self) -> Json:
        """Look at what fails before anything is done."""
        loop = self._loop
        row = loop.store.loop
        try:
            reports = await self._stories.gates.before(_nobody(loop.id), row.base)
        except Stop as exc:
            return _stop(exc.state, exc.reason)
        suite = merged([report for name, report in reports.items() if name in loop.test_names])
        red = [each.id for each in suite.red()]
        if not suite.is_complete:
            return _stop(
                LoopState.CONFIGURATION,
                f"the tests cannot be run on {row.base[:12]}: {'; '.join(suite.problems)[:1000]}; "
                "see `loop.checks` and `sandbox.setup`",
            )
        if red and loop.settings.baseline == "refuse":
            count = "1 test fails" if len(red) == 1 else f"{len(red)} tests fail"
            return _stop(
                LoopState.CONFIGURATION,
                f"{count} before anything is done: {', '.join(red[:_SHOWN])}; mend and commit them, or take "
                "`--baseline record`, so that only new failures count, and start another loop",
            )
        others = {name: report for name, report in reports.items() if name not in loop.test_names}
        red_checks = sorted(name for name, report in others.items() if not report.is_green)
        loop.store.add_event(
            "started", "loop.started", base=row.base, stories=len(loop.plan.stories), red=red[:_SHOWN],
            red_count=len(red), red_checks=red_checks,
        )  # fmt: skip
        return {"next": "on"}

    async def _dispatch(self, tasks: TaskGroup) -> Json:
        """Have stories worked on that are ready."""
        loop = self._loop
        try:
            loop.left()
        except Stop as exc:
            return await self._halted(_stop(exc.state, exc.reason))
        rows = {row.id: row for row in loop.store.stories}
        running = [row for row in rows.values() if row.state is StoryState.RUNNING]
        now = _ready(loop, rows)
        for name, why in now.skipped.items():
            loop.store.update_story(name, state=StoryState.SKIPPED, reason=why)
            loop.store.add_event(
                f"{name}.{rows[name].generation}.ended", "story.skipped", story=name, reason=why
            )
        for name, why in now.blocked.items():
            loop.store.update_story(name, state=StoryState.BLOCKED, reason=why)
            loop.store.add_event(
                f"{name}.{rows[name].generation}.ended", "story.blocked", story=name, question=why
            )
        free = sorted(set(range(loop.settings.parallel)) - {row.slot for row in running})
        for chosen, slot in zip(now.stories, free, strict=False):
            loop.store.update_story(chosen.id, state=StoryState.RUNNING, slot=slot, stage="tests", reason="")
            running.append(loop.store.story(chosen.id))
        for row in running:
            if row.stage == "merge":
                self._ended.set()  # its work is done: it is merged next, without waiting for another story
            elif row.id not in self._at_work:
                self._at_work.add(row.id)
                tasks.start_soon(self._work_on, row.id)
        return {"next": "on"} if running else await self._end()

    async def _work_on(self, story: str) -> None:
        """Work on one story; an error of ours ends the loop as a story does that cannot go on."""
        try:
            answer = await self._stories.work(story)
        except Exception as exc:  # noqa: BLE001 -- the other stories come to their ends
            answer = _stop(LoopState.INFRASTRUCTURE, f"the work on story {story} failed: {exc}")
        if answer["next"] == "stop":
            self._stop = self._stop or answer
        self._at_work.discard(story)
        self._ended.set()

    async def _wait(self) -> Json:
        """Until a story has come to an end; or all of them, once one of them ends the loop."""
        await self._ended.wait()
        self._ended = anyio.Event()
        return {"next": "on"} if self._stop is None else await self._halted(self._stop)

    async def _halted(self, stop: Json) -> Json:
        """End the loop, once nothing is at work any more."""
        self._loop.runs.wind_down()
        while self._at_work:
            await self._ended.wait()
            self._ended = anyio.Event()
        return stop

    async def _end(self) -> Json:
        """How a loop ends that nothing is left to do for."""
        rows = self._loop.store.stories
        by = {state: [row.id for row in rows if row.state is state] for state in StoryState}
        if len(by[StoryState.PASSED]) == len(rows):
            told = "the story passed" if len(rows) == 1 else f"all {len(rows)} stories passed"
            return _stop(LoopState.SUCCEEDED, told)
        told = ", ".join(f"{len(names)} {state.value}" for state, names in by.items() if names)
        if by[StoryState.BLOCKED] and not by[StoryState.SKIPPED]:
            return _stop(
                LoopState.BLOCKED, f"{told}; answer what is asked, then `ringfence loop retry STORY`"
            )
        return _stop(LoopState.INCOMPLETE, told)

    async def _merge_all(self) -> Json:
        """Bring what passed onto the loop's branch, one story after another."""
        rows = self._loop.store.stories
        for row in rows:
            if row.state is StoryState.RUNNING and row.stage == "merge":
                try:
                    await self._merge(row)
                except Stop as exc:
                    return await self._halted(_stop(exc.state, exc.reason))
        return {"next": "on"}

    async def _merge(self, row: StoryRow) -> None:
        assert row.tip is not None
        loop = self._loop
        tip, found = row.tip, await loop.repository.merge(row.tip)
        accepted = loop.store.step(row, ACCEPTED)
        is_by_person = accepted is not None and accepted.result.get("commit") == row.tip
        while not isinstance(found, Merged):
            if isinstance(found, Conflict):
                why = f"its changes do not fit what came meanwhile: {', '.join(found.paths[:_SHOWN])}"
                return await self._anew(row, why)
            tip = found.tip
            complaints = (
                [] if is_by_person else (await self._stories.gates.green(row, f"merge.{tip}", tip))[0]
            )
            if complaints:
                return await self._anew(row, f"together with what came meanwhile: {complaints[0][:1000]}")
            found = await loop.repository.merge(tip)
        if found.tip == tip:
            gate = f"checks.{row.attempt}" if tip == row.tip else f"merge.{tip}"
            await self._stories.gates.keep_as_base(row, gate, tip)
        loop.store.update_story(row.id, state=StoryState.PASSED, merged=found.tip, stage="", reason="")
        runs = loop.store.runs_of(row, [*code_steps(row.attempt), f"merge.{tip}"])
        outside = await self._stories.clones.outside(row)
        # What a person accepts has ended once before.
        key = f"{row.id}.{row.generation}.{'accepted' if is_by_person else 'ended'}"
        loop.store.add_event(
            key, "story.passed", story=row.id, attempt=row.attempt, commit=found.tip,
            runs=runs, outside=outside[:_SHOWN], outside_count=len(outside), is_by_person=is_by_person,
        )  # fmt: skip
        return None

    async def _anew(self, row: StoryRow, why: str) -> None:
        """Begin a story again on the branch as it is now; too often, and it is skipped."""
        store = self._loop.store
        if row.generation >= self._loop.settings.attempts:
            store.update_story(row.id, state=StoryState.SKIPPED, reason=why, stage="")
            store.add_event(f"{row.id}.{row.generation}.ended", "story.skipped", story=row.id, reason=why)
            return
        store.add_event(
            f"{row.id}.{row.generation}.anew", "story.retried", story=row.id, attempt=row.attempt, role="merge",
            complaints=[why], runs=store.runs_of(row, code_steps(row.attempt)),
        )  # fmt: skip
        store.update_story(
            row.id, state=StoryState.WAITING, generation=row.generation + 1, attempt=0, stage="", base=None,
            tests=None, tip=None, reason=why,
        )  # fmt: skip

    async def _complete(self, answer: Json) -> None:
        """Deliver what passed, and write down the end."""
        loop, state, reason = self._loop, LoopState(answer["state"]), answer["reason"]
        row = loop.store.loop
        passed = [story for story in loop.store.stories if story.state is StoryState.PASSED]
        if passed:
            try:
                await loop.repository.deliver()
            except (DeliveryRefused, RepositoryRefused) as exc:
                reason = f"{reason}; the branch could not be delivered: {exc}"
                state = LoopState.REFUSED if state is LoopState.SUCCEEDED else state
        for story in loop.store.stories:
            if story.state is StoryState.RUNNING:  # its turn is not over: it goes on when the loop does
                loop.store.update_story(story.id, state=StoryState.WAITING, stage="")
        kind = "loop.cancelled" if state is LoopState.CANCELLED else "loop.completed"
        loop.store.add_event(f"ended.{row.round}", kind, state=state.value, reason=reason, passed=len(passed))
        loop.store.end(state, reason)
        problem = await write_report(
            loop.place, loop.store, loop.repository, loop.plan, redactor=loop.redactor
        )
        if problem is not None:
            loop.runs.tell(problem)


def _ready(loop: Loop, rows: Mapping[str, StoryRow]) -> Ready:
    """Which may be begun. A story waits for a person as long as its row says so, whatever the stories' file said."""
    by = {state: [row.id for row in rows.values() if row.state is state] for state in StoryState}
    asked = {row.id: row.reason or "?" for row in rows.values() if row.state is StoryState.BLOCKED}
    stories = tuple(replace(story, question=asked.get(story.id)) for story in loop.plan.stories)
    found = ready(
        replace(loop.plan, stories=stories),
        done=by[StoryState.PASSED],
        skipped=by[StoryState.SKIPPED],
        running=by[StoryState.RUNNING],
    )
    return replace(found, blocked={name: why for name, why in found.blocked.items() if name not in asked})


def _stop(state: LoopState, reason: str) -> Json:
    return {"next": "stop", "state": state.value, "reason": reason}


def _nobody(loop: str) -> StoryRow:
    """In place of a story, where a step is about the loop's branch."""
    return StoryRow(loop, "", 0, StoryState.RUNNING, "", 1, 0, "", 0, None, None, None, None)
