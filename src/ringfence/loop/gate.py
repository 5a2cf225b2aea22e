"""A gate: checks run on a commit, in a new sandbox and with a record of its own; their reports are kept as a step."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from ringfence.check import Check, Report, TestResult, run_check
from ringfence.config import Effective
from ringfence.errors import RingfenceError
from ringfence.events import CommandEnded, Emit
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome, outcome_of
from ringfence.job.request import RunRequest
from ringfence.job.resolution import command_request
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.journal import new_run_id
from ringfence.loop.assembly import changed_paths
from ringfence.loop.loop import Loop
from ringfence.loop.outcome import ENDS_LOOP, IS_FAULT, Fault, Stop
from ringfence.loop.role.run_settings import effective_for_checks
from ringfence.loop.rows import StepKey, StepRow, base_key
from ringfence.loop.runs import Runs
from ringfence.loop.state import LoopState
from ringfence.loop.steps import run_once
from ringfence.loop.trees import Trees
from ringfence.sandbox import Sandbox

_SHOWN = 20
_NAME_CHARS = 200
_REPORT = TypeAdapter(Report)
_BY_CHECKED_CODE = (JobState.TIMED_OUT, JobState.LIMIT, JobState.FAILED)
"""Ends of a gate's run that the checked code brought about."""
_WAS_RUN = (JobState.SUCCEEDED.value, JobState.CHECK_RED.value)
_FROM_BEST = ("passed", "skipped", "failed", "error")


@frozen
class GateEnd:
    """How a run of checks ended."""

    run_id: str
    state: JobState
    """`succeeded` or `check_red`: all were run; anything else: they could not be."""
    reason: str
    reports: Mapping[str, Report]
    """By the check's name."""

    @property
    def was_run(self) -> bool:
        """Whether there is a report of each check."""
        return self.state in (JobState.SUCCEEDED, JobState.CHECK_RED)


def merged(reports: Collection[Report]) -> Report:
    """Several checks' reports as one. Of tests that have the same id in several, the worst result counts."""
    results: dict[str, TestResult] = {}
    for name, each in (item for report in reports for item in report.results.items()):
        results[name] = max(each, results.get(name, each), key=lambda one: _FROM_BEST.index(one.outcome))
    red = [report for report in reports if not report.is_green]
    told = (*red, *reports)[0]
    return Report(
        results=results,
        is_complete=all(report.is_complete for report in reports),
        exit_code=told.exit_code,
        ended_by=told.ended_by,
        output="\n".join(report.output for report in reports),
        problems=tuple(problem for report in reports for problem in report.problems),
        altered=tuple(sorted({name for report in reports for name in report.altered})),
    )


class Gate:
    """Runs checks on commits.

    Args:
        loop: The loop.
        trees: The trees that are checked.
    """

    def __init__(self, loop: Loop, trees: Trees) -> None:
        self._loop = loop
        self._trees = trees

    async def reports(
        self,
        key: StepKey,
        commit: str,
        checks: Sequence[Check],
        *,
        base: str,
        limit_s: float | None = None,
    ) -> dict[str, Report]:
        """Reports of checks on a commit, by the check's name; what is known under the step's key is not run again.

        Args:
            key: Names the step.
            commit: What is checked.
            checks: What is run.
            base: The commit that the story began at: its tests say what decides about the checks.
            limit_s: Of all checks together. None: each has its own limit only.

        Raises:
            Stop: They cannot be run.
        """
        step = await run_once(
            self._loop,
            key,
            lambda: self._try(key, commit, checks, base, limit_s),
            what="the checks could not be run",
        )
        return kept_reports(step)

    async def base_reports(self, commit: str) -> dict[str, Report]:
        """Reports of all checks of the loop on a commit of its branch: they are the same for all stories."""
        return await self.reports(base_key(commit), commit, self._loop.checks, base=commit)

    def keep_as_base(self, gate: StepKey, commit: str) -> None:
        """Keep the reports of a commit that is the branch's now for `base_reports`: they are not run twice."""
        store = self._loop.store
        step = store.step(gate)
        if step is None or step.outcome not in _WAS_RUN or store.step(base_key(commit)) is not None:
            return
        reports = {each.name: step.result["reports"].get(each.name) for each in self._loop.checks}
        if None not in reports.values():
            result = {"reports": reports, "run": step.run_id}
            store.keep_step(base_key(commit), outcome=step.outcome or "", result=result)

    async def _try(
        self, key: StepKey, commit: str, checks: Sequence[Check], base: str, limit_s: float | None
    ) -> StepRow:
        loop = self._loop
        loop.check_not_stopped()
        tests = await self._trees.test_files(commit)
        workspace, run_id = await self._trees.checkout(commit), new_run_id()
        loop.store.begin_step(key, run_id=run_id)
        end = await run_gate(
            loop.runs, loop.effective, checks, workspace, run_id=run_id, test_files=tests, limit_s=limit_s
        )
        if end.was_run:
            reports = await self._with_touched(end, commit, base, checks)
        elif end.state in _BY_CHECKED_CODE:
            reports = {each.name: _unfinished(end) for each in checks}
        elif end.state in ENDS_LOOP:
            stop = Stop(ENDS_LOOP[end.state], f"the checks could not be run: {end.reason}")
            raise loop.why_stopped() or stop
        else:
            raise Fault(end.reason, IS_FAULT.get(end.state, LoopState.INFRASTRUCTURE))
        kept = {
            name: loop.redactor.redact(_REPORT.dump_python(each, mode="json"))
            for name, each in reports.items()
        }
        return loop.store.end_step(key, outcome=end.state.value, result={"reports": kept})

    async def _with_touched(
        self, end: GateEnd, commit: str, base: str, checks: Sequence[Check]
    ) -> dict[str, Report]:
        """Code that is loaded before a test is could write another test in its place."""
        protected = (await self._trees.protected(commit, base=base)).paths
        touched = [path for path in await changed_paths(end.run_id) if path in protected]
        names = tuple(f"the file {ascii(path)[:_NAME_CHARS]}" for path in sorted(touched)[:_SHOWN])
        reports = {
            check.name: replace(end.reports[check.name], altered=(*end.reports[check.name].altered, *names))
            for check in checks
            if check.kind == "test"
        }
        return {**end.reports, **reports}


def kept_reports(step: StepRow) -> dict[str, Report]:
    """The reports of a gate's step, by the check's name."""
    return {check: _REPORT.validate_python(report) for check, report in step.result["reports"].items()}


def _unfinished(end: GateEnd) -> Report:
    return Report({}, is_complete=False, exit_code=None, ended_by=end.state.value, problems=(end.reason,))


async def run_gate(
    runs: Runs,
    effective: Effective,
    checks: Sequence[Check],
    workspace: Path,
    *,
    run_id: str,
    test_files: Collection[str],
    limit_s: float | None = None,
) -> GateEnd:
    """Run checks one after another. Never raises for what goes wrong inside.

    Args:
        runs: Does it.
        effective: The loop's configuration.
        checks: What is run.
        workspace: The state that is checked; what checks write to it is thrown away.
        run_id: Names the run.
        test_files: Files with tests.
        limit_s: Of all checks together. None: each has its own limit only.
    """
    reports: dict[str, Report] = {}

    async def work(sandbox: Sandbox, emit: Emit) -> Outcome:
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
        if red:
            return Outcome(JobState.CHECK_RED, f"red: {', '.join(red)}")
        return Outcome(JobState.SUCCEEDED, "all checks are green")

    try:
        request = _request(effective, checks, workspace, limit_s).running(work)
        run = JobRun(request, run_id=run_id, store=runs.jobs)
        result = await runs.do(run)
    except RingfenceError as exc:
        outcome = outcome_of(exc)
        return GateEnd(run_id, outcome.state, outcome.reason, {})
    return GateEnd(run_id, result.state, result.reason, reports)


def _request(
    effective: Effective, checks: Sequence[Check], workspace: Path, limit_s: float | None
) -> RunRequest:
    command = " ; ".join(check.command for check in checks)
    request = command_request(
        ("/bin/sh", "-c", command), workspace, effective_for_checks(effective), purpose="exec"
    )
    total = sum(check.timeout_s for check in checks) + 60.0
    return replace(request, wall_clock_s=total if limit_s is None else min(total, limit_s))
