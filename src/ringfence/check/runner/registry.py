"""Finds the runner that a command calls, and runs a check by it; of an unknown one only the exit code is known."""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ringfence.check.report import Check, Report, TestResult
from ringfence.check.runner.base import output_of
from ringfence.errors import ConfigurationError

if TYPE_CHECKING:
    from ringfence.sandbox import ExecResult, Sandbox


_RUNNERS = (
    (r"\bpytest\b|\bpy\.test\b", "pytest"),
    (r"-m\s+unittest\b", "unittest"),
    (r"\bnode\b.*\s--test\b", "node"),
    (r"\bgo\s+test\b", "go"),
    (r"\bcargo\s+(?:\+\S+\s+)?(?:test|t)\b", "cargo"),
    (r"\bmvn\b.*\b(?:test|verify|install|package)\b", "maven"),
)
_BREAKS = re.compile(r"&&|\|\||[;&|\n]")
_NO_CALL = re.compile(
    r"\s*(?:[!({]\s*)*(?:\w+=\S*\s+)*(?:(?:\S*/)?(?:echo|printf|[ef]?grep|rg|test|\[|cat|head|tail|ls|rm|find|cp|mv|mkdir|touch|cd"
    r"|sed|awk|which|type|pip[\d.]*)|uv\s+pip|uv\s+add|command\s+-v|(?:\S*/)?python[\d.]*\s+-m\s+pip"
    r"|(?:\S*/)?python[\d.]*\s+-c)(?:\s|$)"
)
"""The beginning of a command that may name a runner and does not call it."""


def runner_of(command: str) -> str | None:
    """Which runner's report a command's tests can be read from; None: only its exit code counts."""
    calls = ";".join(part for part in _BREAKS.split(command) if not _NO_CALL.match(part))
    for pattern, runner in _RUNNERS:
        if re.search(pattern, calls):
            return runner
    return None


RUN_ALONE = ("pytest", "unittest", "go", "cargo")
"""Runners that can be asked for one test (`Check.only`). Those of Node have a process for each file."""
_OUTPUT_BYTES = 128 * 1024
_DETAIL_CHARS = 4000
_NOT_RUN = {126: "it cannot be executed", 127: "its program is not there"}


async def run_check(
    check: Check,
    sandbox: "Sandbox",
    *,
    canary: bool,
    test_files: Collection[str] = (),
) -> Report:
    """Run a check to its end.

    Args:
        check: What to run; its `timeout_s` ends it. With `only`, for one of `RUN_ALONE`, just that test is run.
        sandbox: Where; its workspace is what is checked. Files of the check's own that are put into the workspace
            are taken out again.
        canary: Run tests that must fail among the others, and believe nothing if they do not; for runners where
            product code shares the process with what judges it (pytest, unittest, node) or its package (go).
        test_files: Files with tests, relative to the workspace, where the canary must be in (node).

    Raises:
        ConfigurationError: The check names a runner that there is not.
        SandboxDied: The sandbox went before the end.
    """
    match check.runner:
        case None:
            return await _by_exit_code(check, sandbox, canary=canary, test_files=test_files)
        case "pytest" | "unittest":
            from ringfence.check.runner.python import run_python

            return await run_python(
                check, sandbox, canary=canary and check.only is None, test_files=test_files
            )
        case "node":
            from ringfence.check.runner.node import run_node

            return await run_node(check, sandbox, canary=canary, test_files=test_files)
        case "go":
            from ringfence.check.runner.go import run_go

            return await run_go(check, sandbox, canary=canary and check.only is None)
        case "cargo":
            from ringfence.check.runner.cargo import run_cargo

            return await run_cargo(check, sandbox)
        case "maven":
            from ringfence.check.runner.maven import run_maven

            return await run_maven(check, sandbox)
        case runner:
            raise ConfigurationError(
                f"check {check.name!r} names the runner {runner!r}; there are pytest, unittest, node, go, cargo "
                "and maven; without one only the exit code counts"
            )


async def _by_exit_code(
    check: Check, sandbox: "Sandbox", *, canary: bool, test_files: Collection[str]
) -> Report:
    """One result, named as the check; and those of pytest if the command starts it, as `make test` may."""
    if canary and check.kind == "test":
        from ringfence.check.runner.python import run_started_pytest

        report, ended = await run_started_pytest(check, sandbox, test_files=test_files)
        if report is not None:
            result = TestResult(check.name, "passed" if ended.ok else "failed")
            return replace(report, results={**report.results, check.name: result})
        if ended.ok:
            return _of_exit_code(check, ended)
        # A command that hands pytest our options, but not our path, fails by that alone.
    ended = await sandbox.run(
        ["/bin/sh", "-c", check.command],
        timeout_s=check.timeout_s,
        output_limit_bytes=_OUTPUT_BYTES,
        on_output=check.on_output,
    )
    return _of_exit_code(check, ended)


def _of_exit_code(check: Check, ended: "ExecResult") -> Report:
    problems = list[str]()
    if ended.ended_by == "timeout":
        problems.append(f"{check.name} was not done after {check.timeout_s:g} s")
    elif ended.ended_by != "exit":
        problems.append(f"{check.name} was ended by {ended.ended_by}")
    elif ended.exit_code in _NOT_RUN:
        problems.append(f"{check.name} could not be run: {_NOT_RUN[ended.exit_code]}: {check.command!r}")
    output = output_of(ended)
    detail = "" if ended.ok else output[-_DETAIL_CHARS:]
    outcome = TestResult(check.name, "passed" if ended.ok else "failed", None, detail)
    return Report(
        {check.name: outcome}, not problems, ended.exit_code, ended.ended_by, output, tuple(problems)
    )
