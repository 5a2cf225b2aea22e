"""Runs pytest with Ringfence's plugin, and unittest with Ringfence's runner, in a package with a random name.

The package's directory is added to `PYTHONPATH`.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING

from ringfence.check.report import RED, Check, Report
from ringfence.check.report_stream import PrivateDirectory, ReportBuilder, private_directory, run_with_socket
from ringfence.check.runner.base import build_report

if TYPE_CHECKING:
    from ringfence.sandbox import ExecResult, Sandbox


_SENT = (
    "__init__.py",
    "channel.py",
    "integrity.py",
    "definitions.py",
    "wrappers.py",
    "hooks.py",
    "pytest_plugin.py",
    "unittest_runner.py",
)
_UNITTEST = re.compile(r"-m\s+unittest\b(?!\.)")
_PATH_SET = re.compile(r"(?<![\w-])PYTHONPATH=(?=\S)")


async def run_python(
    check: Check, sandbox: "Sandbox", *, canary: bool, test_files: Collection[str] = ()
) -> Report:
    """Run pytest or unittest. Arguments and errors as `run_check`."""
    builder, ended, mark = await _run(check, sandbox, canary=canary, test_files=test_files)
    return build_report(check, builder, ended, canary=mark)


async def run_started_pytest(
    check: Check, sandbox: "Sandbox", *, test_files: Collection[str]
) -> tuple[Report | None, "ExecResult"]:
    """Run a command that may start pytest. Return pytest's report, or None if it was not started; and how it ended.

    The canary runs separately: a failed canary would stop a command from continuing after pytest.
    """
    as_pytest = replace(check, runner="pytest")
    builder, ended, _ = await _run(as_pytest, sandbox, canary=False, test_files=test_files)
    if not builder.started_runners:
        return None, ended
    if not check.only and (problem := await why_failure_not_reported(as_pytest, sandbox)) is not None:
        builder.add_problem(problem)
    return build_report(as_pytest, builder, ended, canary=""), ended


async def why_failure_not_reported(check: Check, sandbox: "Sandbox") -> str | None:
    """Load all tests, but run only one that must fail. Return why its failure was not reported; None if it was.

    The results of the tests themselves come from a separate run without this canary.
    """
    builder, ended, mark = await _run(check, sandbox, canary=True, only_canary=True)
    if ended.ended_by != "exit":
        return f"the second run, in which one test must fail, ended by {ended.ended_by}"
    outcomes = {each.outcome for name, each in builder.results.items() if mark in name}
    if outcomes and outcomes <= RED:
        return None
    reported = ", ".join(sorted(outcomes)) or "not run"
    return f"a test that must fail was reported as {reported}: the runner's results cannot be trusted"


async def _run(
    check: Check,
    sandbox: "Sandbox",
    *,
    canary: bool,
    only_canary: bool = False,
    test_files: Collection[str] = (),
) -> tuple[ReportBuilder, "ExecResult", str]:
    inside = files("ringfence.check") / "inside"
    sent = {name: (inside / name).read_bytes() for name in _SENT}
    own = {**sandbox.facts.environment, **sandbox.spec.env}
    protected = [path for path in test_files if path.endswith(".py")]
    settings: dict[str, str | bool | list[str]] = {
        "addopts": own.get("PYTEST_ADDOPTS", ""),
        "plugins": own.get("PYTEST_PLUGINS", ""),
        "only_canary": only_canary,
        "only": check.only or "",
        "protected": protected,
        # The code of a test that runs alone is compared with its file.
        "test_files": protected if check.only else [],
    }
    if not canary:
        settings["canary"] = ""
    async with private_directory(sandbox, sent, settings) as directory:
        env = {"PYTHONPATH": ":".join(filter(None, (directory.path, own.get("PYTHONPATH"))))}
        if check.runner == "pytest":
            # Code with rewritten assertions would differ from its file.
            plain = " --assert=plain" if check.only else ""
            env["PYTEST_ADDOPTS"] = (
                f"{settings['addopts']} -p {directory.package}.pytest_plugin{plain}".strip()
            )
        builder, ended = await run_with_socket(
            sandbox,
            directory,
            _command(check, directory),
            env=env,
            timeout_s=check.timeout_s,
            on_output=check.on_output,
        )
        return builder, ended, directory.canary if canary else ""


def _command(check: Check, directory: PrivateDirectory) -> str:
    command = check.command
    if check.runner == "unittest":
        command = _UNITTEST.sub(f"-m {directory.package}.unittest_runner", command)
    # A command that sets PYTHONPATH itself would drop the directory.
    return _PATH_SET.sub(f"PYTHONPATH={directory.path}:", command)
