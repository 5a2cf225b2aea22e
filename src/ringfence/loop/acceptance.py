"""Judges a story's commits by their check reports: its tests fail first, then pass, and nothing else breaks."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ringfence.check import Check, Report, feedback, new_failures, red_for_the_right_reason
from ringfence.check.baseline import Expected, expected_tests, function_of, is_new_test, removed
from ringfence.check.red_reason import Project, may_hold_tests
from ringfence.check.runner.registry import RUN_ALONE
from ringfence.job.state import JobState
from ringfence.loop.check_runner import CheckRunner, kept_reports, merged
from ringfence.loop.loop import Loop
from ringfence.loop.repository import Tree
from ringfence.loop.rows import MAX_LISTED, StoryRow
from ringfence.loop.story_commits import StoryCommits

_OUTPUT_CHARS = 8000
_DETAIL_CHARS = 500
_MAX_ALONE = 50
"""How many of a story's tests are run alone; of more tests, a random sample of this size."""
_ALONE_TIMES = 3
"""The time limit for all tests that are run alone, as a multiple of the check's own limit."""


class Acceptance:
    """Judges a story's commits by the reports of its checks.

    Args:
        loop: The loop.
        commits: The story's commits.
        check_runner: Runs the checks.
    """

    def __init__(self, loop: Loop, commits: StoryCommits, check_runner: CheckRunner) -> None:
        self._loop = loop
        self._commits = commits
        self._check_runner = check_runner

    async def check_tests_fail(
        self, row: StoryRow, name: str, commit: str, files: Collection[str]
    ) -> list[str]:
        """Check that a story's new tests are red, and that nothing else became red. Return the complaints."""
        assert row.base is not None
        tests = [check for check in self._loop.checks if check.kind == "test"]
        earlier = await self._check_runner.run_base_checks(row.base)
        later = await self._check_runner.run_or_load(row.key(name), commit, tests, base=row.base)
        reporting = [check for check in tests if later[check.name].runner]
        by_exit_code = [check for check in tests if not later[check.name].runner]
        written = [file for file in files if self._loop.conventions.is_test(file)]
        unproved = _unproved(by_exit_code, earlier, later)
        if not reporting:
            return unproved
        before, after = merged(_of(earlier, reporting)), merged(_of(later, reporting))
        tree, story = await self._commits.tree(commit), self._loop.story(row.id)
        text = "\n".join((story.title, story.description, *story.criteria))
        project = Project((*tree.files, *story.files), text)
        complaints = red_for_the_right_reason(after, written, before, project=project, checks=reporting)
        if by_exit_code and not unproved and not any(each.file in written for each in after.results.values()):
            complaints = []  # the exit code of a command shows that they fail
        own = {each.id for each in after.results.values() if each.file in files or is_new_test(each, before)}
        own |= {check.name for check in reporting}  # the exit code of a command that starts the runner
        broken = [each for each in new_failures(after, before) if each.id not in own]
        return [
            *complaints,
            *(f"the new tests break {each.id}: {each.detail[:300]}" for each in broken[:MAX_LISTED]),
        ]

    async def check_candidate(
        self, row: StoryRow, name: str, commit: str
    ) -> tuple[list[str], dict[str, str]]:
        """Check that a candidate is green. Return the complaints, and each check's colour by its name."""
        assert row.base is not None
        before, red = await self._check_runner.run_base_checks(row.base), self._last_red(row)
        written, changed = await self._written(row), await self._changed_by_writer(row)
        checks = self._loop.checks_of(self._loop.story(row.id))
        reports = await self._check_runner.run_or_load(row.key(name), commit, checks, base=row.base)
        complaints, colours = list[str](), dict[str, str]()
        for check in checks:
            report, earlier = reports[check.name], before.get(check.name)
            expected = expected_tests(check, earlier, red.get(check.name), changed)
            complaint = _complaint(check, report, earlier, expected)
            complaint = complaint or _not_run(check, report, earlier, written)
            was_red = earlier is not None and not earlier.is_green
            colours[check.name] = (
                "red" if complaint else "red, as before" if was_red and not report.is_green else "green"
            )
            complaints += [complaint] if complaint else []
        return complaints, colours

    async def check_tests_alone(self, row: StoryRow, attempt: int, commit: str) -> list[str]:
        """Run each of the story's own tests once more, in a separate process. Return the complaints.

        In the other runs, code under test shares a process with the tests and could change those that run after it.
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
        if len(alone) > _MAX_ALONE:
            alone = random.Random(commit).sample(alone, _MAX_ALONE)  # noqa: S311 -- the author cannot predict it
        limit_s = _ALONE_TIMES * max(check.timeout_s for check in alone)
        key = row.key(f"alone.{attempt}")
        found = await self._check_runner.run_or_load(key, commit, alone, base=row.base, limit_s=limit_s)
        if any(report.run_state == JobState.TIMED_OUT.value for report in found.values()):
            return [f"the story's own tests, each of them run alone, took longer than {limit_s:g} s together"]
        return [
            f"{check.only} passes among the other tests and not alone: {_alone_problem(found[check.name])}"
            for check in alone
            if not _is_passed(found[check.name], check)
        ]

    async def removed_tests(self, row: StoryRow) -> list[str]:
        """Return the tests that passed before the story and that its test writer removed or made skipped, by id."""
        assert row.base is not None
        before, red = await self._check_runner.run_base_checks(row.base), self._last_red(row)
        changed = await self._changed_by_writer(row)
        return sorted(
            name
            for check in self._loop.checks
            if check.name in red
            for name in removed(check, before[check.name], red[check.name], changed)
        )

    async def tested_files(self, row: StoryRow) -> set[str]:
        """Return the files whose tests a runner reported, before the story or with its tests."""
        assert row.base is not None
        reports = [
            *(await self._check_runner.run_base_checks(row.base)).values(),
            *self._last_red(row).values(),
        ]
        return {
            each.file
            for report in reports
            for each in report.results.values()
            if each.file not in (None, each.id)
        } - {None}

    async def _written(self, row: StoryRow) -> dict[str, str]:
        """Map each of the story's own test files to the check that ran it when it was red."""
        assert row.tests_commit is not None
        tree, changed = await self._commits.tree(row.tests_commit), await self._changed_by_writer(row)
        return {
            each.file: check
            for check, report in self._last_red(row).items()
            for each in report.red()
            if each.file is not None and each.file in changed and _holds_tests(tree, each.file)
        }

    async def _changed_by_writer(self, row: StoryRow) -> frozenset[str]:
        """Return the files that differ between the commit with the story's tests and the story's base."""
        assert row.base is not None
        assert row.tests_commit is not None
        before, after = (
            (await self._commits.tree(row.base)).files,
            (await self._commits.tree(row.tests_commit)).files,
        )
        return frozenset(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))

    def _last_red(self, row: StoryRow) -> dict[str, Report]:
        """Return the last red reports of the story's own tests, by name of the check."""
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
    """Return a complaint about the story's own test files that were not run completely; empty if there are none.

    Tests that did not pass before the story are not counted.
    """
    old = {each.id for each in before.results.values() if each.outcome != "passed"} if before else set[str]()
    lines = []
    for file, check_name in written.items():
        if check_name == check.name:
            of_file = [each for each in report.results.values() if each.file == file]
            outcomes = {each.outcome for each in of_file if each.id not in old}
            if outcomes != {"passed"}:
                lines.append(f"{file}: its tests are {', '.join(sorted(outcomes)) or 'not run'}")
    return "\n".join(lines)


def _unproved(
    checks: Sequence[Check], before: Mapping[str, Report], after: Mapping[str, Report]
) -> list[str]:
    """Return why no check that is judged by its exit code shows that new tests fail; empty if one of them does."""
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
                f"{check.name} ({check.command}) passes with the new tests although nothing is built yet: they prove "
                "nothing, or it does not run them"
            )
        else:
            return []
    return complaints


def _of(reports: Mapping[str, Report], checks: Sequence[Check]) -> list[Report]:
    return [reports[check.name] for check in checks]


def _complaint(check: Check, report: Report, before: Report | None, expected: Expected) -> str:
    """Return the problem of a check's report, for the next attempt; empty if there is none."""
    if check.kind == "test":
        return feedback(check, report, before, expected=expected, max_chars=_OUTPUT_CHARS)
    if report.is_green or (before is not None and not before.is_green):
        return ""
    return feedback(check, report, None, max_chars=_OUTPUT_CHARS)


def _is_passed(report: Report, check: Check) -> bool:
    outcomes = {each.outcome for name, each in report.results.items() if function_of(name) == check.only}
    return report.is_complete and not report.altered and outcomes == {"passed"}


def _alone_problem(report: Report) -> str:
    problems = [*report.problems, *(f"{name} was changed while it ran" for name in report.altered)]
    problems += [each.detail or each.outcome for each in report.results.values() if each.outcome != "passed"]
    return " ".join("; ".join(problems or ["it was not run"]).split())[:_DETAIL_CHARS]
