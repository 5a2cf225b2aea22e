"""Works on one story: its tests are written and must fail, then its code is written, checked, reviewed and judged.

Each step is durable: after a crash, work resumes at the interrupted step.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio.to_thread

from ringfence.errors import ConfigurationError
from ringfence.loop.acceptance import Acceptance
from ringfence.loop.agent_run import AgentResult, AgentRuns, Task
from ringfence.loop.assembly import assemble, only_tests, run_changes
from ringfence.loop.briefing import TaskBuilder
from ringfence.loop.check_runner import CheckRunner
from ringfence.loop.exceptions import Blocked, LoopStopped, Rejected, Skipped
from ringfence.loop.loop import Loop
from ringfence.loop.rejection import reason_of, reject, rejections, shorten_list
from ringfence.loop.repository import Change, NothingChanged, WorkRefused
from ringfence.loop.role import IMPLEMENTOR, TEST_WRITER, AuthorRole
from ringfence.loop.rows import JUDGE_STEP, MAX_LISTED, CommittedWork, StoryRow, check_steps, tests_steps
from ringfence.loop.settings import RoleName
from ringfence.loop.state import LoopEnd, LoopState, StoryState
from ringfence.loop.steps import keep_once
from ringfence.loop.story_commits import StoryCommits, storable

EARLIER_CONFIGURATION = "earlier configuration"
TESTS_ALONE = "tests alone"
"""Names in the event `checks.completed` of further runs that were red although each check was green."""


class StoryRunner:
    """Runs one story through its attempts.

    Args:
        loop: The loop.
        story: The story's id.
    """

    def __init__(self, loop: Loop, story: str) -> None:
        self._loop = loop
        self._story = story
        worktree = self._row.slot
        assert worktree is not None
        self._commits = StoryCommits(loop, worktree)
        self._acceptance = Acceptance(loop, self._commits, CheckRunner(loop, self._commits))
        self._agents = AgentRuns(loop, self._commits)
        self._tasks = TaskBuilder(loop, self._commits, self._acceptance.removed_tests)

    @property
    def _row(self) -> StoryRow:
        return self._loop.store.story(self._story)

    async def run(self) -> None:
        """Work on the story until it waits to be merged, is skipped, or is blocked.

        Raises:
            LoopStopped: The loop ends.
        """
        try:
            await self._run_attempts(TEST_WRITER, self._attempt_tests)
            commit = await self._run_attempts(IMPLEMENTOR, self._attempt_code)
        except Skipped as exc:
            self._end(StoryState.SKIPPED, exc.reason, "story.skipped", reason=exc.reason)
        except Blocked as exc:
            self._end(StoryState.BLOCKED, exc.question, "story.blocked", question=exc.question)
        except ConfigurationError as exc:
            raise LoopStopped(LoopEnd(LoopState.CONFIGURATION, str(exc))) from exc
        else:
            self._loop.store.update_story(self._story, code_commit=commit, stage="merge")

    def _end(self, state: StoryState, why: str, kind: str, **data: str) -> None:
        with self._loop.store.transaction():
            self._loop.store.update_story(self._story, state=state, reason=why, stage="")
            self._loop.add_event(self._row, "ended", kind, **data)

    async def _run_attempts(self, role: AuthorRole, try_attempt: Callable[[int], Awaitable[str]]) -> str:
        """Run attempts until one is accepted; return its commit.

        Raises:
            Skipped: All attempts were rejected.
        """
        reason = ""
        for attempt in range(1, self._loop.settings.attempts + 1):
            rejection = self._loop.store.step(self._row.key(f"rejected.{role.name}.{attempt}"))
            if rejection is None:
                try:
                    return await try_attempt(attempt)
                except Rejected as exc:
                    rejection = await reject(self._loop, self._commits, self._row, role, attempt, exc)
            reason = reason_of(rejection)
        raise Skipped(reason)

    async def _attempt_tests(self, attempt: int) -> str:
        """Run the test writer and commit its tests, drop its other changes, and require that the tests fail."""
        row = self._row
        assert row.base is not None
        task = await self._tasks.test_writer(row, attempt, rejections(self._loop, row, "test_writer"))
        result = await self._run_agent(f"tests.{attempt}", task)

        async def commit_tests() -> CommittedWork:
            tests, dropped = only_tests(await _changes(result), self._loop.conventions)
            if not tests:
                shown = "; ".join(shorten_list(dropped, MAX_LISTED))
                others = f"; these changes were dropped: {shown}" if dropped else ""
                raise Rejected([f"no test file was written{others}"])
            return await self._commit(str(row.base), tests, result, "test_writer", attempt)

        work = await self._commit_once(f"tests.{attempt}.commit", commit_tests, attempt)
        complaints = await self._acceptance.check_tests_fail(row, f"red.{attempt}", work.commit, work.files)
        if complaints:
            raise Rejected(complaints, commit=work.commit)
        with self._loop.store.transaction():
            row = self._loop.store.update_story(self._story, tests_commit=work.commit)
            self._loop.add_event(
                row,
                "tests",
                "tests.written",
                of=tests_steps(attempt),
                commit=work.commit,
                files=work.files[:MAX_LISTED],
            )
        return work.commit

    async def _attempt_code(self, attempt: int) -> str:
        """Run the implementor, and check and judge its code; changes of protected files are left out."""
        row = self._row
        task = await self._tasks.implementor(row, attempt, rejections(self._loop, row, "implementor"))
        result = await self._run_agent(f"code.{attempt}", task)

        async def commit_code() -> CommittedWork:
            return await self._commit_code(row, await _changes(result), result, attempt)

        work = await self._commit_once(f"code.{attempt}.commit", commit_code, attempt)
        commit = work.commit
        self._loop.add_event(
            row, f"code.{attempt}", "code.committed", of=[f"code.{attempt}"], attempt=attempt, commit=commit,
            files=len(work.files), left_out=shorten_list(work.left_out, MAX_LISTED),
        )  # fmt: skip
        await self._check(row, attempt, work)
        if self._loop.settings.review:
            await self._run_agent(f"review.{attempt}", await self._tasks.reviewer(row, attempt, commit))
        judged = await self._run_agent(
            f"{JUDGE_STEP}.{attempt}", await self._tasks.judge(row, attempt, commit)
        )
        if judged.answer["complaints"]:
            raise Rejected(judged.answer["complaints"], commit=commit)
        return commit

    async def _commit_code(
        self, row: StoryRow, changes: Sequence[Change], result: AgentResult, attempt: int
    ) -> CommittedWork:
        """Commit the implementor's changes of unprotected files on the commit with the story's tests."""
        assert row.base is not None
        assert row.tests_commit is not None
        reported = await self._acceptance.tested_files(row)
        protected = await self._commits.protected(row.tests_commit, base=row.base, reported=reported)
        before, story_files = await self._commits.tree(row.tests_commit), self._loop.story(row.id).files
        assembled = await anyio.to_thread.run_sync(
            lambda: assemble(before, protected, changes, named=story_files)
        )
        if assembled.complaints or not assembled.changes:
            raise Rejected([*assembled.complaints, *_left_out(assembled.left_out)])
        work = await self._commit(row.tests_commit, assembled.changes, result, "implementor", attempt)
        configuration = sorted(os.fsdecode(path) for path in assembled.configuration)
        return replace(work, left_out=assembled.left_out, configuration=tuple(configuration))

    async def _check(self, row: StoryRow, attempt: int, work: CommittedWork) -> None:
        """Run all checks in a new sandbox: green tests must stay green, and the story's tests must become green."""
        commit = work.commit
        complaints, colours = await self._acceptance.check_candidate(row, f"checks.{attempt}", commit)
        if not complaints and work.configuration:
            complaints = await self._check_with_old_configuration(row, attempt, commit, work.configuration)
            colours |= {EARLIER_CONFIGURATION: "red"} if complaints else {}
        if not complaints:
            complaints = await self._acceptance.check_tests_alone(row, attempt, commit)
            colours |= {TESTS_ALONE: "red"} if complaints else {}
        self._loop.add_event(
            row, f"checks.{attempt}", "checks.completed", of=check_steps(attempt), attempt=attempt,
            is_green=not complaints, checks=colours,
        )  # fmt: skip
        if complaints:
            raise Rejected([*complaints, *_left_out(work.left_out)], commit=commit)

    async def _check_with_old_configuration(
        self, row: StoryRow, attempt: int, commit: str, configuration: Sequence[str]
    ) -> list[str]:
        """Check a candidate with the configuration as it was before the story. Return the complaints."""
        assert row.tests_commit is not None
        candidate = await self._commits.restore(row, commit, configuration, attempt=attempt)
        complaints, _ = await self._acceptance.check_candidate(row, f"configuration.{attempt}", candidate)
        return [f"with {', '.join(configuration)} as before the story: {each}" for each in complaints]

    async def _run_agent(self, name: str, task: Task) -> AgentResult:
        """Run a role's agent on its task.

        Raises:
            Rejected: The run failed.
            Blocked: The agent asks a question.
        """
        result = await self._agents.run(self._row.key(name), task)
        if result.complaint is not None:
            raise Rejected([result.complaint])
        if result.answer.get("question"):
            raise Blocked(result.answer["question"])
        return result

    async def _commit_once(
        self, name: str, commit: Callable[[], Awaitable[CommittedWork]], attempt: int
    ) -> CommittedWork:
        """Commit an attempt's work, or return what was committed if the step was completed before."""

        async def make() -> dict[str, Any]:
            return (await commit()).to_result()

        key = self._row.key(name)
        result = await keep_once(self._loop, key, make, outcome="committed", attempt=attempt)
        return CommittedWork.from_result(result)

    async def _commit(
        self, base: str, changes: Sequence[Change], result: AgentResult, role: RoleName, attempt: int
    ) -> CommittedWork:
        """Commit a role's changes."""
        title = self._loop.story(self._story).title
        message = f"{title}: tests" if role == "test_writer" else title
        try:
            commit = await self._commits.commit(
                base, changes, story=self._story, message=message, role=role, attempt=attempt, model=result.model,
                at_s=result.at_s,
            )  # fmt: skip
        except (WorkRefused, NothingChanged) as exc:
            raise Rejected([str(exc)]) from exc
        return CommittedWork(commit, tuple(storable(os.fsdecode(change.path)) for change in changes))


async def _changes(result: AgentResult) -> list[Change]:
    """Return the changes that a role's run made.

    Raises:
        Rejected: There are no changes, or more than a commit may contain.
    """
    try:
        found = await run_changes(result.run_id, result.diff)
    except WorkRefused as exc:
        raise Rejected([str(exc)]) from exc
    if not found:
        raise Rejected(["nothing was changed"])
    return found


def _left_out(changes: Sequence[str]) -> list[str]:
    """Return the complaint about an attempt's changes of protected files, if there are any."""
    if not changes:
        return []
    shown = "; ".join(shorten_list(changes, MAX_LISTED))
    return [f"these changes were left out, as the files are protected: {shown}"]
