"""Gates as steps: what checks say of a commit, and what is wrong with it."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ringfence.check import Check, Report, feedback, new_failures, red_for_the_right_reason
from ringfence.check.baseline import Expected, expected_tests, function_of, is_new_test, removed
from ringfence.check.red_reason import Project, may_hold_tests
from ringfence.check.runner.registry import RUN_ALONE
from ringfence.job.state import JobState
from ringfence.journal import new_run_id
from ringfence.loop.machine.clones import Clones
from ringfence.loop.machine.gate import GateEnd, merged, run_gate
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.reports import dumped, loaded
from ringfence.loop.machine.stop import ENDS_LOOP, IS_FAULT, Stop
from ringfence.loop.machine.turns import pause_before
from ringfence.loop.repository import Tree
from ringfence.loop.rows import StoryRow
from ringfence.loop.state import LoopState

_SHOWN = 20
_OUTPUT_CHARS = 8000
_NAME_CHARS = 200
_DETAIL_CHARS = 500
_MOST_ALONE = 50
"""Of a story with more tests, so many are run alone, chosen by chance."""
_NOBODYS = (JobState.TIMED_OUT, JobState.LIMIT, JobState.FAILED)
"""Ends of a gate's run that the checked code brought about."""
_WAS_RUN = (JobState.SUCCEEDED.value, JobState.CHECK_RED.value)


class Gates:
    """Runs checks.

    Args:
        loop: Whose.
        clones: What is checked.
    """

    def __init__(self, loop: Loop, clones: Clones) -> None:
        self._loop = loop
        self._clones = clones

    async def reports(
        self, row: StoryRow, name: str, commit: str, checks: Sequence[Check]
    ) -> dict[str, Report]:
        """Checks on a commit, in a new sandbox; what is known under the step's name is not run again.

        Raises:
            Stop: They cannot be run.
        """
        state, why = LoopState.INFRASTRUCTURE, ""
        for number in range(self._loop.settings.limits.faults):
            known = self._loop.store.step(row, name)
            if known is not None and known.outcome is not None:
                return {check: loaded(report) for check, report in known.result["reports"].items()}
            await pause_before(number, self._loop.runs)
            end = await self._run(row, name, commit, checks)
            if end.was_run or end.state in _NOBODYS:
                reports = (
                    dict(end.reports) if end.was_run else {each.name: _unfinished(end) for each in checks}
                )
                told = {
                    check: self._loop.redactor.redact(dumped(report)) for check, report in reports.items()
                }
                self._loop.store.end_step(row, name, outcome=end.state.value, result={"reports": told})
                return {check: loaded(report) for check, report in told.items()}
            why, state = end.reason, IS_FAULT.get(end.state, ENDS_LOOP.get(end.state, state))
            if end.state in ENDS_LOOP:
                raise self._loop.why_stopped() or Stop(state, f"the checks could not be run: {why}")
        raise Stop(state, f"the checks could not be run: {why}")

    async def _run(self, row: StoryRow, name: str, commit: str, checks: Sequence[Check]) -> GateEnd:
        self._loop.left()
        tests = await self._clones.test_files(row, commit)
        slot, run_id = await self._clones.put_at(row, commit), new_run_id()
        self._loop.store.begin_step(row, name, run_id=run_id)
        end = await run_gate(
            self._loop.runs, self._loop.effective, checks, slot.inside, run_id=run_id, test_files=tests
        )
        return await self._with_touched(end, row, commit, checks) if end.was_run else end

    async def _with_touched(
        self, end: GateEnd, row: StoryRow, commit: str, checks: Sequence[Check]
    ) -> GateEnd:
        """Code that is loaded before a test is could write another test in its place."""
        touched = await self._clones.protected_written(row, commit, end.run_id)
        names = tuple(f"the file {ascii(path)[:_NAME_CHARS]}" for path in touched[:_SHOWN])
        reports = {
            check.name: replace(end.reports[check.name], altered=(*end.reports[check.name].altered, *names))
            for check in checks
            if check.kind == "test"
        }
        return replace(end, reports={**end.reports, **reports})

    async def before(self, row: StoryRow, base: str) -> dict[str, Report]:
        """What all checks say of a commit of the loop's branch: the same for all stories."""
        return await self.reports(_branch(row), f"base.{base}", base, self._loop.checks)

    async def keep_as_base(self, row: StoryRow, name: str, commit: str) -> None:
        """What a gate said of a commit that is the branch's now is what `before` is asked for: it is not run twice."""
        store, gate, base = self._loop.store, self._loop.store.step(row, name), f"base.{commit}"
        if gate is None or gate.outcome not in _WAS_RUN or store.step(_branch(row), base) is not None:
            return
        reports = {each.name: gate.result["reports"].get(each.name) for each in self._loop.checks}
        if None not in reports.values():
            store.begin_step(_branch(row), base, run_id=None)
            store.end_step(
                _branch(row), base, outcome=gate.outcome, result={"reports": reports, "run": gate.run_id}
            )

    async def tests_are_red(self, row: StoryRow, name: str, commit: str, files: Collection[str]) -> list[str]:
        """What is wrong with tests that were written: they must be red, and nothing else may have become so."""
        assert row.base is not None
        tests = [check for check in self._loop.checks if check.kind == "test"]
        earlier, later = await self.before(row, row.base), await self.reports(row, name, commit, tests)
        told = [check for check in tests if later[check.name].runner]
        silent = [check for check in tests if not later[check.name].runner]
        written = [file for file in files if self._loop.conventions.is_test(file)]
        unproved = _unproved(silent, earlier, later)
        if not told:
            return unproved
        before, after = merged(_of(earlier, told)), merged(_of(later, told))
        tree, story = await self._clones.tree(row, commit), self._loop.story(row.id)
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
        before, red = await self.before(row, row.base), await self._last_red(row)
        written, changed = await self._written(row), await self._clones.changed_by_writer(row)
        checks = self._loop.checks_of(self._loop.story(row.id))
        reports = await self.reports(row, name, commit, checks)
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
        written, step = await self._written(row), self._loop.store.step(row, f"checks.{attempt}")
        assert step is not None
        reports = {check: loaded(report) for check, report in step.result["reports"].items()}
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
        found = await self.reports(row, f"alone.{attempt}", commit, alone)
        return [
            f"{check.only} passes among the other tests and not alone: {_alone_problem(found[check.name])}"
            for check in alone
            if not _is_passed(found[check.name], check)
        ]

    async def removed_tests(self, row: StoryRow) -> list[str]:
        """Tests that passed before the story and that its test writer removed, or that are skipped now."""
        assert row.base is not None
        before, red = await self.before(row, row.base), await self._last_red(row)
        changed = await self._clones.changed_by_writer(row)
        return sorted(
            name
            for check in self._loop.checks
            if check.name in red
            for name in removed(check, before[check.name], red[check.name], changed)
        )

    async def tested_files(self, row: StoryRow) -> set[str]:
        """Files that a runner said it ran tests of, before the story or with its tests."""
        assert row.base is not None
        reports = [*(await self.before(row, row.base)).values(), *(await self._last_red(row)).values()]
        return {
            each.file
            for report in reports
            for each in report.results.values()
            if each.file not in (None, each.id)
        } - {None}

    async def _written(self, row: StoryRow) -> dict[str, str]:
        """The story's own files with tests, and the check that ran each when it was red."""
        assert row.tests is not None
        tree = await self._clones.tree(row, row.tests)
        return {
            each.file: check
            for check, report in (await self._last_red(row)).items()
            for each in report.red()
            if each.file is not None and await self._is_new(row, each.file) and _holds_tests(tree, each.file)
        }

    async def _is_new(self, row: StoryRow, file: str) -> bool:
        """Whether the test writer wrote a file."""
        assert row.base is not None
        assert row.tests is not None
        before, after = await self._clones.tree(row, row.base), await self._clones.tree(row, row.tests)
        return before.read(file) != after.read(file)

    async def _last_red(self, row: StoryRow) -> dict[str, Report]:
        """By check, what was told of the story's own tests on its base."""
        steps = [step for step in self._loop.store.steps(row.id) if step.generation == row.generation]
        last = next(
            step for step in reversed(steps) if step.name.startswith("red.") and step.outcome is not None
        )
        return {check: loaded(report) for check, report in last.result["reports"].items()}


def _branch(row: StoryRow) -> StoryRow:
    """In a story's place, the loop's branch."""
    return replace(row, id="", generation=1)


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


def _unfinished(end: GateEnd) -> Report:
    return Report({}, is_complete=False, exit_code=None, ended_by=end.state.value, problems=(end.reason,))
