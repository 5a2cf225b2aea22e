"""Runs checks on a commit, in a new sandbox with a separate record, and stores their reports as a step."""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from ringfence.check import Check, Report, TestResult, run_check
from ringfence.check.report import SEVERITY
from ringfence.config import Effective
from ringfence.errors import RingfenceError
from ringfence.events import CommandEnded, Emit, VerificationEnded
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome, outcome_of
from ringfence.job.request import RunRequest
from ringfence.job.resolution import command_request
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.journal import new_run_id
from ringfence.loop.exceptions import Fault, LoopStopped
from ringfence.loop.loop import Loop
from ringfence.loop.role.run_settings import effective_for_checks
from ringfence.loop.rows import StepKey, StepRow, base_key
from ringfence.loop.runs import Runs
from ringfence.loop.state import ENDS_LOOP, FAULTS, LoopEnd, LoopState
from ringfence.loop.steps import run_once
from ringfence.loop.story_commits import StoryCommits
from ringfence.sandbox import Sandbox

_REPORT = TypeAdapter(Report)
_COUNTS_AS_RED = (JobState.TIMED_OUT, JobState.LIMIT, JobState.FAILED)
"""States of a run that ended before its checks did because of the checked code."""
_WAS_RUN = (JobState.SUCCEEDED, JobState.CHECK_RED)
_MARGIN_S = 60.0
"""The time that a run of checks has besides that of the checks, to open the sandbox and to compare files."""


@frozen
class CheckRunResult:
    """The result of a run of checks."""

    run_id: str
    state: JobState
    """`succeeded` or `check_red` if every check was run; any other state if the run ended before that."""
    reason: str
    reports: Mapping[str, Report]
    """The reports by name of the check."""
    changed: frozenset[bytes] | None = None
    """The files that changed while the checks ran; None: they are not known, as the run did not reach its end."""

    @property
    def was_run(self) -> bool:
        """Whether there is a report for every check."""
        return self.state in _WAS_RUN


def merged(reports: Collection[Report]) -> Report:
    """Merge the reports of several checks. If a test has several results, the most severe counts."""
    results: dict[str, TestResult] = {}
    for name, each in (item for report in reports for item in report.results.items()):
        results[name] = max(each, results.get(name, each), key=lambda one: SEVERITY[one.outcome])
    red = [report for report in reports if not report.is_green]
    first = (*red, *reports)[0]
    return Report(
        results=results,
        is_complete=all(report.is_complete for report in reports),
        exit_code=first.exit_code,
        ended_by=first.ended_by,
        run_state=first.run_state,
        output="\n".join(report.output for report in reports),
        problems=tuple(problem for report in reports for problem in report.problems),
        altered=tuple(sorted({name for report in reports for name in report.altered})),
    )


class CheckRunner:
    """Runs checks on commits.

    Args:
        loop: The loop.
        commits: Checks out the commits.
    """

    def __init__(self, loop: Loop, commits: StoryCommits) -> None:
        self._loop = loop
        self._commits = commits

    async def run_or_load(
        self,
        key: StepKey,
        commit: str,
        checks: Sequence[Check],
        *,
        base: str,
        limit_s: float | None = None,
    ) -> dict[str, Report]:
        """Run checks on a commit, or return the stored reports if the step was completed before.

        Args:
            key: The step's key.
            commit: The commit to check.
            checks: The checks to run.
            base: The commit at which the story was started; the imports of its tests decide which files are protected.
            limit_s: Time limit for all checks together. None: the sum of their limits, and a minute for the sandbox.

        Returns:
            The reports, by name of the check.

        Raises:
            LoopStopped: The checks cannot be run.
        """
        step = await run_once(
            self._loop,
            key,
            lambda: self._run_step(key, commit, checks, base, limit_s),
            what="the checks could not be run",
        )
        return kept_reports(step)

    async def run_base_checks(self, commit: str) -> dict[str, Report]:
        """Run all checks of the loop on a commit of its branch, once for all stories; otherwise as `run_or_load`."""
        return await self.run_or_load(base_key(commit), commit, self._loop.checks, base=commit)

    def keep_as_base(self, checked: StepKey, commit: str) -> None:
        """Store a step's reports for `run_base_checks`: its commit is now the branch's, and is not checked twice."""
        store = self._loop.store
        step = store.step(checked)
        if step is None or step.outcome not in _WAS_RUN or store.step(base_key(commit)) is not None:
            return
        reports = {each.name: step.result["reports"].get(each.name) for each in self._loop.checks}
        if None not in reports.values():
            result = {"reports": reports, "run": step.run_id}
            store.keep_step(base_key(commit), outcome=step.outcome or "", result=result)

    async def _run_step(
        self, key: StepKey, commit: str, checks: Sequence[Check], base: str, limit_s: float | None
    ) -> StepRow:
        loop = self._loop
        loop.check_not_stopped()
        tests = await self._commits.test_files(commit)
        workspace, run_id = await self._commits.checkout(commit), new_run_id()
        loop.store.begin_step(key, run_id=run_id)
        end = await run_checks(
            loop.runs, loop.effective, checks, workspace, run_id=run_id, test_files=tests, limit_s=limit_s
        )
        if end.was_run:
            reports = await self._with_changed_files(end, commit, base, checks)
        elif end.state in _COUNTS_AS_RED:
            reports = {each.name: _unfinished(end) for each in checks}
        elif end.state in ENDS_LOOP:
            loop_end = LoopEnd(ENDS_LOOP[end.state], f"the checks could not be run: {end.reason}")
            raise LoopStopped(loop.why_stopped() or loop_end)
        else:
            raise Fault(end.reason, FAULTS.get(end.state, LoopState.INFRASTRUCTURE))
        kept = {
            name: loop.redactor.redact(_REPORT.dump_python(each, mode="json"))
            for name, each in reports.items()
        }
        return loop.store.end_step(key, outcome=end.state.value, result={"reports": kept})

    async def _with_changed_files(
        self, end: CheckRunResult, commit: str, base: str, checks: Sequence[Check]
    ) -> dict[str, Report]:
        """Report protected files that changed during the run as altered: code could overwrite a test before it runs.

        All of them are reported, by their full paths: those that a run on the base changes as well are no failure, and
        a file that was left out there or here would hide an overwritten test.
        """
        protected = (await self._commits.protected(commit, base=base)).paths
        assert end.changed is not None
        changed = protected.keys() & {os.fsdecode(path) for path in end.changed}
        names = tuple(f"the file {path!a}" for path in sorted(changed))
        reports = {
            check.name: replace(end.reports[check.name], altered=(*end.reports[check.name].altered, *names))
            for check in checks
            if check.kind == "test"
        }
        return {**end.reports, **reports}


def kept_reports(step: StepRow) -> dict[str, Report]:
    """Return the stored reports of a run of checks, by name of the check."""
    return {check: _REPORT.validate_python(report) for check, report in step.result["reports"].items()}


def _unfinished(end: CheckRunResult) -> Report:
    return Report(
        results={},
        is_complete=False,
        exit_code=None,
        ended_by="cancel",
        problems=(end.reason,),
        run_state=end.state.value,
    )


async def run_checks(
    runs: Runs,
    effective: Effective,
    checks: Sequence[Check],
    workspace: Path,
    *,
    run_id: str,
    test_files: Collection[str],
    limit_s: float | None = None,
) -> CheckRunResult:
    """Run checks one after another in one sandbox. Errors of the run become the state of the result.

    Args:
        runs: Executes the run.
        effective: The loop's configuration.
        checks: The checks to run.
        workspace: The files to check; changes that checks make are discarded.
        run_id: The id of the new run.
        test_files: Files with tests.
        limit_s: Time limit for all checks together. None: the sum of their limits, and a minute for the sandbox.
    """
    reports: dict[str, Report] = {}

    async def work(sandbox: Sandbox, emit: Emit) -> Outcome:
        all_began = time.monotonic()
        for check in checks:
            began = time.monotonic()
            report = await run_check(check, sandbox, canary=check.kind == "test", test_files=test_files)
            reports[check.name] = report
            await emit(
                CommandEnded(
                    sandbox_id=sandbox.id,
                    argv=["/bin/sh", "-c", check.command],
                    exit_code=-1 if report.exit_code is None else report.exit_code,
                    ended_by=report.ended_by,
                    duration_ms=round((time.monotonic() - began) * 1000, 3),
                    stdout=report.output,
                    stderr="",
                )
            )
        red = [name for name, report in reports.items() if not report.is_green]
        await emit(_verification(checks, reports, passed=not red, duration_s=time.monotonic() - all_began))
        if red:
            return Outcome(JobState.CHECK_RED, f"red: {', '.join(red)}")
        return Outcome(JobState.SUCCEEDED, "all checks are green")

    try:
        request = _request(effective, checks, workspace, limit_s).running(work)
        run = JobRun(request, run_id=run_id, store=runs.jobs)
        result = await runs.execute(run)
    except RingfenceError as exc:
        outcome = outcome_of(exc)
        return CheckRunResult(run_id, outcome.state, outcome.reason, {})
    return CheckRunResult(run_id, result.state, result.reason, reports, run.changed_files)


def _verification(
    checks: Sequence[Check], reports: Mapping[str, Report], *, passed: bool, duration_s: float
) -> VerificationEnded:
    """Return the event that states the result of all checks together; their output is in the events before it."""
    whole = merged(reports.values())
    runners = {check.runner for check in checks}
    outcomes = [
        each.outcome for report in reports.values() if report.runner for each in report.results.values()
    ]
    caveats = [f"of {check.command!r} only the exit code was checked" for check in checks if not check.runner]
    caveats += [f"only the test {check.only!r} was run" for check in checks if check.only is not None]
    return VerificationEnded(
        command=" ; ".join(check.command for check in checks),
        passed=passed,
        exit_code=-1 if whole.exit_code is None else whole.exit_code,
        ended_by=whole.ended_by,
        output="",
        duration_ms=round(duration_s * 1000, 3),
        runner=runners.pop() if len(runners) == 1 else None,
        tests={name: outcomes.count(name) for name in sorted(set(outcomes))},
        canary=any(check.kind == "test" and check.runner for check in checks),
        caveats=caveats,
    )


def _request(
    effective: Effective, checks: Sequence[Check], workspace: Path, limit_s: float | None
) -> RunRequest:
    command = " ; ".join(check.command for check in checks)
    request = command_request(
        ("/bin/sh", "-c", command), workspace, effective_for_checks(effective), purpose="exec"
    )
    total = sum(check.timeout_s for check in checks) + _MARGIN_S
    return replace(
        request,
        wall_clock_s=total if limit_s is None else min(total, limit_s),
        keeps_work=False,
        finds_changed_files=True,
    )
