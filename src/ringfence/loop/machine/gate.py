"""A gate: checks run on a state of a story's clone, in a new sandbox, with a record of its own."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

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
from ringfence.loop.machine.turn import Runs
from ringfence.loop.role.run_settings import effective_for_checks
from ringfence.sandbox import Sandbox

_FROM_BEST = ("passed", "skipped", "failed", "error")


@frozen
class GateEnd:
    """What checks said."""

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


async def run_gate(
    runs: Runs,
    effective: Effective,
    checks: Sequence[Check],
    workspace: Path,
    *,
    run_id: str,
    test_files: Collection[str],
) -> GateEnd:
    """Run checks one after another. Never raises for what goes wrong inside.

    Args:
        runs: Does it.
        effective: The loop's configuration.
        checks: What is run.
        workspace: The state that is checked; what checks write to it is thrown away.
        run_id: Names the run.
        test_files: Files with tests.
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
        request = _request(effective, checks, workspace).running(work)
        run = JobRun(request, run_id=run_id)
        result = await runs.do(run)
    except RingfenceError as exc:
        outcome = outcome_of(exc)
        return GateEnd(run_id, outcome.state, outcome.reason, {})
    return GateEnd(run_id, result.state, result.reason, reports)


def _request(effective: Effective, checks: Sequence[Check], workspace: Path) -> RunRequest:
    command = " ; ".join(check.command for check in checks)
    request = command_request(
        ("/bin/sh", "-c", command), workspace, effective_for_checks(effective), purpose="exec"
    )
    total = sum(check.timeout_s for check in checks) + 60.0
    return replace(request, wall_clock_s=total)
