"""Runs pytest and unittest with our plugin or runner, which is put on `PYTHONPATH` under a random package name."""

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
    """Run a command that may start pytest. Return what pytest reported, or None; and how the command ended.

    The canary has a run of its own: what a command does after pytest would not be done if that failed.
    """
    as_pytest = replace(check, runner="pytest")
    builder, ended, _ = await _run(as_pytest, sandbox, canary=False, test_files=test_files)
    if not builder.begun:
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
    settings: dict[str, str | bool | list[str]] = {
        "addopts": own.get("PYTEST_ADDOPTS", ""),
        "plugins": own.get("PYTEST_PLUGINS", ""),
        "only_canary": only_canary,
        "only": check.only or "",
        "conftests": [path for path in test_files if path.rpartition("/")[2] == "conftest.py"],
        # Of a test that is run alone the code is compared with its file.
        "test_files": [path for path in test_files if path.endswith(".py")] if check.only else [],
    }
    if not canary:
        settings["canary"] = ""
    async with private_directory(sandbox, sent, settings) as place:
        env = {"PYTHONPATH": ":".join(filter(None, (place.path, own.get("PYTHONPATH"))))}
        if check.runner == "pytest":
            # Rewritten assertions would be other code than what the file says.
            plain = " --assert=plain" if check.only else ""
            env["PYTEST_ADDOPTS"] = f"{settings['addopts']} -p {place.package}.pytest_plugin{plain}".strip()
        builder, ended = await run_with_socket(
            sandbox,
            place,
            _command(check, place),
            env=env,
            timeout_s=check.timeout_s,
            on_output=check.on_output,
        )
        return builder, ended, place.canary if canary else ""


def _command(check: Check, place: PrivateDirectory) -> str:
    command = check.command
    if check.runner == "unittest":
        command = _UNITTEST.sub(f"-m {place.package}.unittest_runner", command)
    # A command that sets the path itself would lose ours.
    return _PATH_SET.sub(f"PYTHONPATH={place.path}:", command)
