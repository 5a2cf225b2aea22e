"""Builds the tasks of roles: collects the information that each role needs for a story, and reads its answer."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ringfence.check import Report, summary
from ringfence.check.tree import TreeEntry
from ringfence.errors import Unparseable
from ringfence.loop.agent_instructions import NOTE, restore_agent_instructions
from ringfence.loop.agent_run import Task
from ringfence.loop.check_runner import kept_reports
from ringfence.loop.loop import Loop
from ringfence.loop.rejection import rejections_by_person, shorten_list
from ringfence.loop.repository import Tree
from ringfence.loop.role import (
    IMPLEMENTOR,
    JUDGE,
    REVIEWER,
    TEST_WRITER,
    Briefing,
    Role,
    check_evidence,
    complaints_of,
)
from ringfence.loop.rows import CommittedWork, StepRow, StoryRow
from ringfence.loop.runs import AgentEnd
from ringfence.loop.settings import RoleName
from ringfence.loop.story import details
from ringfence.loop.story_commits import StoryCommits

_GUIDES = ("AGENTS.md", "CLAUDE.md")
_GUIDE_CHARS = 20_000
_OUTPUT_CHARS = 8_000
_EARLIER_CHARS = 3_000
_SUMMARY_CHARS = 2_000
_MAX_FILES = 2_000
_MAX_PROTECTED = 300
_MAX_NOTED = 20

_LEFT_OUT = "Changes of protected files that were left out"
_CONFIGURATION = (
    "Protected configuration that the attempt changed, as the story's `files` name it: the checks pass with it and "
    "without it; see what the change is for"
)
_BY_PERSON = (
    "Earlier work on the story was accepted and then taken back; see whether the attempt mends the reason"
)
_REMOVED = (
    "Tests that passed before the story and that its test writer removed: see whether the story asks for that"
)
RemovedTests = Callable[[StoryRow], Awaitable[list[str]]]


class TaskBuilder:
    """Builds the tasks of roles for the stories of a loop.

    Args:
        loop: The loop.
        commits: The story's commits.
        removed_tests: Returns the tests that a story's test writer removed.
    """

    def __init__(self, loop: Loop, commits: StoryCommits, removed_tests: RemovedTests) -> None:
        self._loop = loop
        self._commits = commits
        self._removed_tests = removed_tests

    async def test_writer(self, row: StoryRow, attempt: int, past: Sequence[StepRow]) -> Task:
        """Build the test writer's task, on the commit at which the story was started."""
        assert row.base is not None
        tree = await self._commits.tree(row.base)
        briefing = await self._briefing(row, tree, past)
        return self._task(TEST_WRITER, attempt, row.base, briefing, read=_read_work)

    async def implementor(self, row: StoryRow, attempt: int, past: Sequence[StepRow]) -> Task:
        """Build the implementor's task, on the commit with the story's tests."""
        assert row.tests_commit is not None
        tree = await self._commits.tree(row.tests_commit)
        assert row.base is not None
        protected = await self._commits.protected(row.tests_commit, base=row.base)
        tests, paths = self._own_tests(row, tree), protected.describe(most=_MAX_PROTECTED)
        briefing = await self._briefing(row, tree, past, tests=tests, protected=paths)
        return self._task(IMPLEMENTOR, attempt, row.tests_commit, briefing, read=_read_work)

    async def reviewer(self, row: StoryRow, attempt: int, commit: str) -> Task:
        """Build the reviewer's task about a candidate."""
        briefing = await self._candidate_briefing(row, attempt, commit)
        return await self._judging_task(REVIEWER, row, attempt, commit, briefing, read=_read_review)

    async def judge(self, row: StoryRow, attempt: int, commit: str) -> Task:
        """Build the judge's task about a candidate; the evidence in its answer is checked against its briefing."""
        step = self._loop.store.step(row.key(f"review.{attempt}"))
        review = json.dumps(step.result["answer"], indent=1) if step is not None else ""
        briefing = await self._candidate_briefing(row, attempt, commit, review=review)
        tree = await self._commits.tree(commit)

        def read(end: AgentEnd) -> Any:
            verdict = JUDGE.read(end.text, end.structured)
            problems = check_evidence(
                verdict, tree.line_count, briefing.results, criteria=len(briefing.criteria)
            )
            if problems:
                raise Unparseable(JUDGE.name, "; ".join(problems[:5]))
            return {"verdict": verdict.model_dump(mode="json"), "complaints": complaints_of(verdict)}

        return await self._judging_task(JUDGE, row, attempt, commit, briefing, read=read)

    async def _judging_task(
        self, role: Role[Any], row: StoryRow, attempt: int, commit: str, briefing: Briefing, *, read: Any
    ) -> Task:
        """Build a task about a candidate from which the attempt's instructions for agents are removed."""
        shown = await self._without_instructions(row, commit, role=role.name, attempt=attempt)
        note = NOTE if shown != commit else ""
        return self._task(role, attempt, shown, briefing, read=read, note=note, must_answer=True)

    async def _without_instructions(self, row: StoryRow, commit: str, *, role: RoleName, attempt: int) -> str:
        """Return a commit of the candidate with the instructions for agents as they were before the story.

        A reviewer or judge must not be instructed by the attempt that it judges.
        """
        assert row.base is not None
        changed = set(await self._commits.changed(row.base, commit))
        before, after = await self._commits.tree(row.base), await self._commits.tree(commit)
        changes = restore_agent_instructions(before, after, changed)
        if not changes:
            return commit
        message = "What instructs agents, as it was before the story"
        return await self._commits.commit(
            commit, changes, story=row.id, message=message, role=role, attempt=attempt, is_work=False
        )

    def _task(
        self,
        role: Role[Any],
        attempt: int,
        commit: str,
        briefing: Briefing,
        *,
        read: Any,
        note: str = "",
        must_answer: bool = False,
    ) -> Task:
        prompt = role.prompt(briefing, template=self._loop.settings.role(role.name).prompt)
        head = f"role: {role.name}\nstory: {briefing.story_id}\nattempt: {attempt} of {self._loop.settings.attempts}\n\n"
        cuts = tuple(str(cut) for cut in prompt.cuts)
        return Task(
            role.name, attempt, commit, head + note + prompt.text, read, prompt.version, cuts, must_answer
        )

    async def _briefing(
        self, row: StoryRow, tree: Tree, past: Sequence[StepRow] = (), **more: Any
    ) -> Briefing:
        plan, story = self._loop.plan, self._loop.story(row.id)
        return Briefing(
            plan_title=plan.title,
            plan_description=plan.description,
            context=plan.context,
            story_id=story.id,
            story_title=story.title,
            story=_with_answer(story.description, row.answer),
            criteria=story.criteria,
            details=details(story),
            feedback=_feedback(past),
            decisions=tuple(rejections_by_person(self._loop, row)),
            commands=tuple(check.command for check in self._loop.checks_of(story)),
            files=tuple(sorted(tree.files)[:_MAX_FILES]),
            guides=await self._guides(row),
            **more,
        )

    async def _guides(self, row: StoryRow) -> dict[str, str]:
        """Return the project's instructions for agents as they were before the story."""
        assert row.base is not None
        files = (await self._commits.tree(row.base)).files
        return {name: _text(files.get(name))[:_GUIDE_CHARS] for name in _GUIDES if name in files}

    async def _candidate_briefing(
        self, row: StoryRow, attempt: int, commit: str, *, review: str = ""
    ) -> Briefing:
        """Return the briefing about a candidate, with only the changes that this story's attempt made."""
        assert row.tests_commit is not None
        tree = await self._commits.tree(commit)
        diff = await self._commits.patch(row.tests_commit, commit)
        reports = self._reports(row, attempt)
        checks = self._loop.checks_of(self._loop.story(row.id))
        outputs = {
            check.name: summary(check, reports[check.name], max_chars=_OUTPUT_CHARS)
            for check in checks
            if check.name in reports
        }
        results = {each.id: each.outcome for report in reports.values() for each in report.results.values()}
        tests = {**self._own_tests(row, tree), **await self._changed_tests(row)}
        notes = await self._notes(row, attempt)
        return await self._briefing(
            row, tree, diff=diff, checks=outputs, results=results, review=review, tests=tests, notes=notes
        )

    async def _notes(self, row: StoryRow, attempt: int) -> tuple[str, ...]:
        """Return notes about changes that a judge should examine carefully."""
        step = self._loop.store.step(row.key(f"code.{attempt}.commit"))
        assert step is not None
        work = CommittedWork.from_result(step.result)
        removed = await self._removed_tests(row)
        decisions = rejections_by_person(self._loop, row)
        notes = [
            (_BY_PERSON, decisions),
            (_LEFT_OUT, work.left_out),
            (_CONFIGURATION, work.configuration),
            (_REMOVED, removed),
        ]
        return tuple(f"{title}: {'; '.join(shorten_list(each, _MAX_NOTED))}" for title, each in notes if each)

    async def _changed_tests(self, row: StoryRow) -> dict[str, str]:
        """Return the test writer's changes of existing tests as a patch, as their new text does not show them."""
        assert row.base is not None
        assert row.tests_commit is not None
        before = await self._commits.tree(row.base)
        if not any(before.read(name) for name in self._own_test_names(row)):
            return {}
        patch = await self._commits.patch(row.base, row.tests_commit)
        return {"(the test writer changed tests that were there; its changes as a patch)": patch}

    def _own_tests(self, row: StoryRow, tree: Tree) -> dict[str, str]:
        """Return the text of each of the story's own test files, by path."""
        return {name: _text(tree.files[name]) for name in self._own_test_names(row) if name in tree.files}

    def _own_test_names(self, row: StoryRow) -> list[str]:
        steps = self._loop.store.steps(row.id, generation=row.generation)
        works = [
            CommittedWork.from_result(step.result)
            for step in steps
            if step.name.startswith("tests.") and step.name.endswith(".commit")
        ]
        files = [work.files for work in works if work.commit == row.tests_commit]
        return [*files[-1]] if files else []

    def _reports(self, row: StoryRow, attempt: int) -> dict[str, Report]:
        step = self._loop.store.step(row.key(f"checks.{attempt}"))
        assert step is not None
        return kept_reports(step)


def _with_answer(description: str, answer: str) -> str:
    return f"{description}\n\nA person has answered: {answer}" if answer else description


def _feedback(past: Sequence[StepRow]) -> tuple[str, ...]:
    """Return why earlier attempts were rejected: the last reason whole, of those before it the beginning."""
    reasons = ["\n".join(step.result["complaints"]) for step in past]
    return tuple(
        each if number == len(reasons) or len(each) <= _EARLIER_CHARS else f"{each[:_EARLIER_CHARS]}\n[cut]"
        for number, each in enumerate(reasons, start=1)
    )


def _text(item: TreeEntry | None) -> str:
    return "" if item is None else item.data.decode("utf-8", "replace")


def _read_work(end: AgentEnd) -> Any:
    """Return the question and the summary of a role whose files count; an unreadable answer has no question."""
    try:
        answer = IMPLEMENTOR.read(end.text, end.structured)
    except Unparseable:
        return {"question": None, "summary": end.text[:_SUMMARY_CHARS]}
    return {"question": answer.question, "summary": answer.summary}


def _read_review(end: AgentEnd) -> Any:
    return REVIEWER.read(end.text, end.structured).model_dump(mode="json")
