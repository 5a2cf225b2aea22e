"""What the reports of checks prove about a story's commits: its tests fail first, then pass, and nothing else broke."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ringfence.check import Check, Report, feedback, new_failures, red_for_the_right_reason
from ringfence.check.baseline import Expected, expected_tests, function_of, is_new_test, removed
from ringfence.check.red_reason import Project, may_hold_tests
from ringfence.check.runner.registry import RUN_ALONE
from ringfence.job.state import JobState
from ringfence.loop.gate import Gate, kept_reports, merged
from ringfence.loop.loop import Loop
from ringfence.loop.repository import Tree
from ringfence.loop.rows import StoryRow
from ringfence.loop.trees import Trees

_SHOWN = 20
_OUTPUT_CHARS = 8000
_DETAIL_CHARS = 500
_MOST_ALONE = 50
"""Of a story with more tests, so many are run alone, chosen by chance."""
_ALONE_TIMES = 3
"""All of a story's tests, each run alone, may take so many times what one run of the check may take."""


class Proof:
    """Judges a story's commits by what the gate reports of them.

    Args:
        loop: The loop.
        trees: The trees of the story.
        gate: Runs the checks.
    """

    def __init__(self, loop: Loop, trees: Trees, gate: Gate) -> None:
        self._loop = loop
        self._trees = trees
        self._gate = gate

    async def tests_are_red(self, row: StoryRow, name: str, commit: str, files: Collection[str]) -> list[str]:
        """What is wrong with tests that were written: they must be red, and nothing else may have become so."""
        assert row.base is not None
        tests = [check for check in self._loop.checks if check.kind == "test"]
        earlier = await self._gate.base_reports(row.base)
        later = await self._gate.reports(row.key(name), commit, tests, base=row.base)
        told = [check for check in tests if later[check.name].runner]
        silent = [check for check in tests if not later[check.name].runner]
        written = [file for file in files if self._loop.conventions.is_test(file)]
        unproved = _unproved(silent, earlier, later)
        if not told:
            return unproved
        before, after = merged(_of(earlier, told)), merged(_of(later, told))
        tree, story = await self._trees.tree(commit), self._loop.story(row.id)
        about = "\n".join((story.title, story.description, *story.criteria))
        project = Project((*tree.files, *story.files), about)
        complaints = red_for_the_right_reason(after, written, before, project=project, checks=told)
        if silent and not unproved and not any(each.file in written for each in after.results.values()):
            complaints = []  # a command of which only the exit code is known shows that they fail
        own = {each.id for each in after.results.values() if each.file in files or is_new_test(each, before)}
        own |= {check.name for check in told}  # the exit code of a command that starts the runner
        broken = [each for each in new_failures(after, before) if each.id not in own]
        return [
            *complaints,
            *(f"the new tests break {each.id}: {each.detail[:300]}" for each in broken[:_SHOWN]),
        ]

    async def green(self, row: StoryRow, name: str, commit: str) -> tuple[list[str], dict[str, str]]:
        """What is wrong with a candidate: complaints; and what each check came to, in a word or two."""
        assert row.base is not None
        before, red = await self._gate.base_reports(row.base), self._last_red(row)
        written, changed = await self._written(row), await self._changed_by_writer(row)
        checks = self._loop.checks_of(self._loop.story(row.id))
        reports = await self._gate.reports(row.key(name), commit, checks, base=row.base)
        complaints, told = list[str](), dict[str, str]()
        for check in checks:
            report, earlier = reports[check.name], before.get(check.name)
            expected = expected_tests(check, earlier, red.get(check.name), changed)
            complaint = _about(check, report, earlier, expected) or _not_run(check, report, earlier, written)
            was_red = earlier is not None and not earlier.is_green
            told[check.name] = (
                "red" if complaint else "red, as before" if was_red and not report.is_green else "green"
            )
            complaints += [complaint] if complaint else []
        return complaints, told

    async def own_tests_alone(self, row: StoryRow, attempt: int, commit: str) -> list[str]:
        """What is wrong if each of the story's own tests is run once more, in a process of its own.

        Code under test shares a process with the tests, and could change those that run after it.
        """
        assert row.base is not None
        written, step = await self._written(row), self._loop.store.step(row.key(f"checks.{attempt}"))
        assert step is not None
        reports = kept_reports(step)
        alone = [
            replace(check, name=f"{check.name}: {name}", only=name)
            for check in self._loop.checks
            if reports[check.name].runner in RUN_ALONE
            for name in sorted(
                {
                    function_of(each.id)
                    for each in reports[check.name].results.values()
                    if each.outcome == "passed"
                    and each.file is not None
                    and written.get(each.file) == check.name
                }
            )
        ]
        if not alone:
            return []
        if len(alone) > _MOST_ALONE:
            alone = random.Random(commit).sample(alone, _MOST_ALONE)  # noqa: S311 -- whoever wrote the code cannot know
        limit_s = _ALONE_TIMES * max(check.timeout_s for check in alone)
        key = row.key(f"alone.{attempt}")
        found = await self._gate.reports(key, commit, alone, base=row.base, limit_s=limit_s)
        if any(report.ended_by == JobState.TIMED_OUT.value for report in found.values()):
            return [f"the story's own tests, each of them run alone, took longer than {limit_s:g} s together"]
        return [
            f"{check.only} passes among the other tests and not alone: {_alone_problem(found[check.name])}"
            for check in alone
            if not _is_passed(found[check.name], check)
        ]

    async def removed_tests(self, row: StoryRow) -> list[str]:
        """Tests that passed before the story and that its test writer removed, or that are skipped now."""
        assert row.base is not None
        before, red = await self._gate.base_reports(row.base), self._last_red(row)
        changed = await self._changed_by_writer(row)
        return sorted(
            name
            for check in self._loop.checks
            if check.name in red
            for name in removed(check, before[check.name], red[check.name], changed)
        )

    async def tested_files(self, row: StoryRow) -> set[str]:
        """Files that a runner said it ran tests of, before the story or with its tests."""
        assert row.base is not None
        reports = [*(await self._gate.base_reports(row.base)).values(), *self._last_red(row).values()]
        return {
            each.file
            for report in reports
            for each in report.results.values()
            if each.file not in (None, each.id)
        } - {None}

    async def _written(self, row: StoryRow) -> dict[str, str]:
        """The story's own files with tests, and the check that ran each when it was red."""
        assert row.tests is not None
        tree, changed = await self._trees.tree(row.tests), await self._changed_by_writer(row)
        return {
            each.file: check
            for check, report in self._last_red(row).items()
            for each in report.red()
            if each.file is not None and each.file in changed and _holds_tests(tree, each.file)
        }

    async def _changed_by_writer(self, row: StoryRow) -> frozenset[str]:
        """Files in which the commit with the story's tests differs from the one that the story began at."""
        assert row.base is not None
        assert row.tests is not None
        before, after = (await self._trees.tree(row.base)).files, (await self._trees.tree(row.tests)).files
        return frozenset(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))

    def _last_red(self, row: StoryRow) -> dict[str, Report]:
        """By check, what was reported of the story's own tests on its base."""
        steps = self._loop.store.steps(row.id, generation=row.generation)
        return kept_reports(
            next(
                step for step in reversed(steps) if step.name.startswith("red.") and step.outcome is not None
            )
        )


def _holds_tests(tree: Tree, file: str) -> bool:
    item = tree.read(file)
    return item is None or may_hold_tests(file, item.data)


def _not_run(check: Check, report: Report, before: Report | None, written: Mapping[str, str]) -> str:
    """Which of the story's own files with tests were not all run; empty: each was.

    Tests that did not pass before the story are not counted.
    """
    old = {each.id for each in before.results.values() if each.outcome != "passed"} if before else set[str]()
    told = []
    for file, named in written.items():
        if named == check.name:
            here = [each for each in report.results.values() if each.file == file]
            outcomes = {each.outcome for each in here if each.id not in old}
            if outcomes != {"passed"}:
                told.append(f"{file}: its tests are {', '.join(sorted(outcomes)) or 'not run'}")
    return "\n".join(told)


def _unproved(
    checks: Sequence[Check], before: Mapping[str, Report], after: Mapping[str, Report]
) -> list[str]:
    """Why commands of which only the exit code is known do not show that new tests fail; empty: one of them does."""
    complaints = []
    for check in checks:
        if not before[check.name].is_green:
            complaints.append(
                f"{check.name} ({check.command}) is red without the new tests: it cannot show that they fail"
            )
        elif not after[check.name].is_complete:
            complaints.append(
                f"{check.name}: the run of the new tests is no proof: {after[check.name].problems[0]}"
            )
        elif after[check.name].is_green:
            complaints.append(
                f"{check.name} ({check.command}) passes with the new tests, before anything was built: they prove "
                "nothing, or it does not run them"
            )
        else:
            return []
    return complaints


def _of(reports: Mapping[str, Report], checks: Sequence[Check]) -> list[Report]:
    return [reports[check.name] for check in checks]


def _about(check: Check, report: Report, before: Report | None, expected: Expected) -> str:
    """What is wrong, for the next attempt; empty: nothing."""
    if check.kind == "test":
        return feedback(check, report, before, expected=expected, most_chars=_OUTPUT_CHARS)
    if report.is_green or (before is not None and not before.is_green):
        return ""
    return feedback(check, report, None, most_chars=_OUTPUT_CHARS)


def _is_passed(report: Report, check: Check) -> bool:
    outcomes = {each.outcome for name, each in report.results.items() if function_of(name) == check.only}
    return report.is_complete and not report.altered and outcomes == {"passed"}


def _alone_problem(report: Report) -> str:
    said = [*report.problems, *(f"{name} was changed while it ran" for name in report.altered)]
    said += [each.detail or each.outcome for each in report.results.values() if each.outcome != "passed"]
    return " ".join("; ".join(said or ["it was not run"]).split())[:_DETAIL_CHARS]
