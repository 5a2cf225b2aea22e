"""Checks a run: finds changes that could affect the check, runs it, and decides the outcome from its report."""

import math
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ringfence.check.protected_files import Conventions, decisive_changes, says_what_checks_run
from ringfence.check.report import RED, Check, Report
from ringfence.check.runner.registry import runner_of
from ringfence.check.tree import TreeEntry
from ringfence.events import VerificationEnded, VerificationStarted
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome
from ringfence.job.recorder import Recorder
from ringfence.job.state import JobState
from ringfence.sandbox import Sandbox
from ringfence.sandbox.workspace.protect.flags import matches_any
from ringfence.sandbox.workspace.record import WorkRecord
from ringfence.sandbox.workspace.snapshot.objects import Blob
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore
from ringfence.tool.shell import output_feed

TIMEOUT_S = 1800.0
_NOT_RUN = {126: "command not executable", 127: "command not found"}
"""The exit codes with which a shell reports that it could not run the command."""
_SHOWN = 5
_NAME_CHARS = 200
_LARGEST_READ = 4 << 20
"""Size in bytes above which a file is not searched for names of other files."""
_INSTALLED = ("node_modules", ".venv", "venv")
_PYTHON_RUNNERS = ("pytest", "unittest")
_REFUSED = "not_run"


@frozen
class CheckedChanges:
    """A run's changes that affect its check."""

    decisive: tuple[str, ...] = ()
    """Changed files that determine the result regardless of the code, with the reason; the check is then refused."""
    caveats: tuple[str, ...] = ()
    """Weaknesses of this check, which the result mentions."""


async def checked_changes(
    command: str, record: WorkRecord, store: SnapshotStore, protect: Collection[str]
) -> CheckedChanges:
    """Find changed files that could alter the result of the check.

    Args:
        command: The command of the check.
        record: The record of the run's work, with both checkpoints.
        store: The store of the checkpoints.
        protect: The user's patterns of files that may not be written.

    Raises:
        InfrastructureFault: Git failed.
    """
    runner = runner_of(command)
    conventions = Conventions(frozenset({runner} if runner else ()), (command,))
    installed = (
        await record.actor.call(partial(_installed_in, Path(record.workspace))) if not record.clone else ()
    )
    caveats = [
        f"{name!r} in the workspace was writable by the agent and is not compared" for name in installed
    ]
    if record.after is None:
        return CheckedChanges(caveats=tuple(caveats))
    forward, gone = await store.changes(record.before, record.after)
    if not forward and not gone:
        return CheckedChanges(caveats=tuple(caveats))
    changed = sorted({os.fsdecode(path) for path in (*(blob.path for blob in forward), *gone)})
    before = await _files(store, record.before, conventions)
    after = await _files(store, record.after, conventions)
    protected = matches_any(list(before), protect) if protect else None
    found = decisive_changes(changed, before, after.get, conventions, protected=protected)
    matching = matches_any(changed, protect)
    found |= dict.fromkeys(matching, "lies where nothing may be written (sandbox.protect)")
    if not protect and (tests := [path for path in changed if conventions.is_test(path)]):
        caveats.append(f"the run changed tests: {_named(tests)}")
    decisive = tuple(f"{path!r} {why}" for path, why in sorted(found.items()))
    return CheckedChanges(decisive, tuple(caveats))


async def _files(store: SnapshotStore, snapshot: str, conventions: Conventions) -> dict[str, TreeEntry]:
    """All files of a snapshot, with the contents of links and of files that may name programs that a check runs."""
    blobs = {os.fsdecode(blob.path): blob for blob in await store.blobs(snapshot)}
    read = [
        blob
        for path, blob in blobs.items()
        if blob.size <= _LARGEST_READ and (says_what_checks_run(path, conventions) or _is_link(blob))
    ]
    files = {path: TreeEntry(b"", blob.git_mode) for path, blob in blobs.items()}
    async for batch in store.contents(read):
        files |= {os.fsdecode(blob.path): TreeEntry(data, blob.git_mode) for blob, data in batch}
    return files


def _is_link(blob: Blob) -> bool:
    return blob.git_mode & 0o170000 == 0o120000


def _installed_in(workspace: Path) -> tuple[str, ...]:
    """Return the directories of packages in the workspace, which a runner may load and git usually ignores."""
    return tuple(name for name in _INSTALLED if (workspace / name).is_dir())


def _named(names: Collection[str]) -> str:
    shown = ", ".join(map(repr, sorted(names)[:_SHOWN]))
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


async def refuse_check(command: str, decisive: Collection[str], recorder: Recorder) -> Outcome:
    """Record that the check is not run, because the run changed files that decide it; return the outcome."""
    what = "; ".join(list(decisive)[:_SHOWN])
    more = f"; and {len(decisive) - _SHOWN} more" if len(decisive) > _SHOWN else ""
    await recorder.emit(VerificationStarted(command=command))
    await recorder.emit(
        VerificationEnded(
            command=command,
            passed=False,
            exit_code=-1,
            ended_by=_REFUSED,
            output="\n".join(decisive),
            duration_ms=0.0,
            runner=runner_of(command),
        )
    )
    return Outcome(
        JobState.CHECK_RED,
        f"the check was not run because this run changed files that determine its result: {what}{more}; undo the run "
        "with `ringfence undo`, or make this change in a separate run with --no-verify",
    )


async def verify(
    command: str,
    sandbox: Sandbox,
    recorder: Recorder,
    caveats: Collection[str] = (),
    *,
    deadline: float = math.inf,
) -> Outcome | None:
    """Run the check and return the outcome; for a known test runner, its report decides, too.

    Args:
        command: The command of the check.
        sandbox: Where it runs.
        recorder: Records its output and its end.
        caveats: Weaknesses of the check, for the record.
        deadline: The time limit of the run, by the monotonic clock.

    Returns:
        The outcome; None if the check did not end before the deadline.
    """
    # The runners bring a parser for each report, which a run without a check does not need.
    from ringfence.check.runner.registry import run_check

    await recorder.emit(VerificationStarted(command=command))
    began = time.monotonic()
    async with output_feed(recorder.emit, "") as feed:
        check = Check("test", "the check", command, _left_s(deadline), runner_of(command), feed.take)
        report = await run_check(check, sandbox, canary=False)
    is_late = report.ended_by == "timeout" and time.monotonic() >= deadline
    problem = _problem(check, report)
    has_canary = False
    if problem is None and check.runner in _PYTHON_RUNNERS:
        from ringfence.check.runner.python import why_failure_not_reported

        again = replace(check, timeout_s=_left_s(deadline), on_output=None)
        problem = await why_failure_not_reported(again, sandbox)
        has_canary = problem is None
        is_late = problem is not None and time.monotonic() >= deadline
    outcomes = [each.outcome for each in report.results.values()] if check.runner else []
    tests: dict[str, int] = {name: outcomes.count(name) for name in sorted(set(outcomes))}
    await recorder.emit(
        VerificationEnded(
            command=command,
            passed=problem is None,
            exit_code=-1 if report.exit_code is None else report.exit_code,
            ended_by=report.ended_by,
            output=report.output,
            duration_ms=round((time.monotonic() - began) * 1000, 3),
            runner=check.runner,
            tests=tests,
            canary=has_canary,
            caveats=[*([] if check.runner else ["only its exit code was checked"]), *caveats],
        )
    )
    if is_late:
        return None
    if problem is None:
        return Outcome(JobState.SUCCEEDED, f"the check passed: {command} ({_proof(check, tests)})")
    return Outcome(JobState.CHECK_RED, problem)


def _left_s(deadline: float) -> float:
    """Return the seconds until the run's time limit; half an hour if it has none."""
    return TIMEOUT_S if deadline == math.inf else max(0.001, deadline - time.monotonic())


def _proof(check: Check, tests: Mapping[str, int]) -> str:
    if check.runner is None:
        return "only its exit code was checked"
    skipped = f", {tests['skipped']} skipped" if tests.get("skipped") else ""
    passed = tests.get("passed", 0)
    return f"{passed} {'test' if passed == 1 else 'tests'} passed{skipped}"


def _problem(check: Check, report: Report) -> str | None:
    """Why a check did not pass; None if it did."""
    command = check.command
    if report.ended_by == "exit" and report.exit_code in _NOT_RUN:
        return (
            f"the check could not run in the sandbox: {_NOT_RUN[report.exit_code]}: {command}; a sandbox has the "
            "programs of the system and your toolchains (see `ringfence config policy show`), a container those of "
            "its image"
        )
    if report.ended_by == "timeout":
        return (
            f"the check did not finish in {check.timeout_s:g} s: {command}; make it faster, or set --timeout"
        )
    if report.ended_by != "exit" or report.exit_code != 0:
        return f"the check failed ({report.end}): {command}"
    if not report.is_complete:
        return f"the check failed ({'; '.join(report.problems)}): {command}"
    if any(each.outcome in RED for each in report.results.values()):
        return f"the check failed (tests failed): {command}"
    if not any(each.outcome == "passed" for each in report.results.values()):
        return f"the check failed (no test passed): {command}"
    if report.altered_by_project:
        names = ", ".join(name[:_NAME_CHARS] for name in report.altered_by_project[:_SHOWN])
        return f"the check failed (code of the project replaced functions of the runner: {names}): {command}"
    return None
