"""Finds the test runner that a command calls, and runs a check with it.

For a command without a known test runner only the exit code counts.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ringfence.check.report import Check, Report, TestResult
from ringfence.check.runner.base import truncated_output
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
_SEPARATORS = re.compile(r"&&|\|\||[;&|\n]")
_NO_CALL = re.compile(
    r"\s*(?:[!({]\s*)*(?:\w+=\S*\s+)*(?:(?:\S*/)?(?:echo|printf|[ef]?grep|rg|test|\[|cat|head|tail|ls|rm|find|cp|mv|mkdir|touch|cd"
    r"|sed|awk|which|type|pip[\d.]*)|uv\s+pip|uv\s+add|command\s+-v|(?:\S*/)?python[\d.]*\s+-m\s+pip"
    r"|(?:\S*/)?python[\d.]*\s+-c)(?:\s|$)"
)
"""The start of a command that may name a test runner without calling it."""


def runner_of(command: str) -> str | None:
    """Return the test runner that a command calls; None if it calls no known one."""
    calls = ";".join(part for part in _SEPARATORS.split(command) if not _NO_CALL.match(part))
    for pattern, runner in _RUNNERS:
        if re.search(pattern, calls):
            return runner
    return None


RUN_ALONE = ("pytest", "unittest", "go", "cargo")
"""Test runners that can run one test (`Check.only`). Node's already runs each file in its own process."""
_OUTPUT_BYTES = 128 * 1024
_DETAIL_CHARS = 4000
_NOT_RUN = {126: "it cannot be executed", 127: "its program was not found"}


async def run_check(
    check: Check,
    sandbox: "Sandbox",
    *,
    canary: bool,
    test_files: Collection[str] = (),
) -> Report:
    """Run a check, and return its report.

    Args:
        check: The check. It ends after its `timeout_s` at the latest. With `only`, and a runner of `RUN_ALONE`, just
            that test is run.
        sandbox: The sandbox whose workspace is checked. Files that the check adds to the workspace are removed again.
        canary: Whether to run tests that must fail among the others; if one does not fail, the report is not
            complete. For runners where product code shares the process with the tests (pytest, unittest, node), or
            their package (go).
        test_files: Files with tests, relative to the workspace. For node, the canary is added to them.

    Raises:
        ConfigurationError: The check names an unknown test runner.
        SandboxDied: The sandbox died before the check ended.
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
                f"check {check.name!r} names the unknown test runner {runner!r}; there are pytest, unittest, node, "
                "go, cargo and maven; without one only the exit code counts"
            )


async def _by_exit_code(
    check: Check, sandbox: "Sandbox", *, canary: bool, test_files: Collection[str]
) -> Report:
    """Return one result with the check's name; and pytest's results if the command starts it, as `make test` may."""
    if canary and check.kind == "test":
        from ringfence.check.runner.python import run_started_pytest

        report, ended = await run_started_pytest(check, sandbox, test_files=test_files)
        if report is not None:
            result = TestResult(check.name, "passed" if ended.ok else "failed")
            return replace(report, results={**report.results, check.name: result})
        if ended.ok:
            return _exit_code_report(check, ended)
        # A command that passes PYTEST_ADDOPTS on to pytest, but not PYTHONPATH, fails only because of that.
    ended = await sandbox.run(
        ["/bin/sh", "-c", check.command],
        timeout_s=check.timeout_s,
        output_limit_bytes=_OUTPUT_BYTES,
        on_output=check.on_output,
    )
    return _exit_code_report(check, ended)


def _exit_code_report(check: Check, ended: "ExecResult") -> Report:
    problems = list[str]()
    if ended.ended_by == "timeout":
        problems.append(f"{check.name} was not done after {check.timeout_s:g} s")
    elif ended.ended_by != "exit":
        problems.append(f"{check.name} was ended by {ended.ended_by}")
    elif ended.exit_code in _NOT_RUN:
        problems.append(f"{check.name} could not be run: {_NOT_RUN[ended.exit_code]}: {check.command!r}")
    output = truncated_output(ended)
    detail = "" if ended.ok else output[-_DETAIL_CHARS:]
    outcome = TestResult(check.name, "passed" if ended.ok else "failed", None, detail)
    return Report(
        {check.name: outcome}, not problems, ended.exit_code, ended.ended_by, output, tuple(problems)
    )
