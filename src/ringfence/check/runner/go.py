"""Runs `go test -json` and parses its output: one event per line, and compiler errors between the events."""

import re
import secrets
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import anyio
import msgspec

from ringfence.check.report import Cause, Check, Report
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.base import build_report, main_cause, result, run_for_output
from ringfence.errors import SandboxError, SandboxFileError

if TYPE_CHECKING:
    from ringfence.sandbox import Sandbox


_COMMAND = re.compile(r"\bgo\s+test\b(?!\s+-json)")
_COMPILER = re.compile(r"^(?:\./)?([^\s:]+\.go):\d+(?::\d+)?: (.+)$")
_NO_PACKAGE = re.compile(
    r"(?:cannot find module providing package|no required module provides package|package) "
    r"([\w./~-]+)(?:[:;]| is not in | but )"
)
_UNPARSABLE = re.compile(
    r"^(?:expected |syntax error|missing '|illegal |newline in |string not |\S+ declared (?:and|but) not used|"
    r"\S+ imported (?:and|but) not used|\"\S+\" imported (?:and|but) not used|found package)"
)
_FUNCTION = re.compile(r"^(?:\./)?(.+?):func ((?:Test|Example|Fuzz|Benchmark)\w*)\(")
_ID = re.compile(r".*\.((?:Test|Example|Fuzz)\w*)(?:/.*)?", re.DOTALL)
_FAILED = re.compile(r"^FAIL\s+(\S+) \[(?:build|setup) failed\]")
_OUTCOMES = {"pass": "passed", "fail": "failed", "skip": "skipped"}
_MAX_DIRECTORIES = 500
_MAX_LINES = 400
_LISTING_BYTES = 4_000_000
_FIND_S = 60.0


class _Event(msgspec.Struct):
    Action: str = ""
    Package: str = ""
    Test: str = ""
    Output: str = ""


_EVENTS = msgspec.json.Decoder(_Event)


async def run_go(check: Check, sandbox: "Sandbox", *, canary: bool) -> Report:
    """Run `go test`. Arguments and errors as `run_check`."""
    tests, module = await _find_tests(sandbox), await _module(sandbox)
    mark = f"Ringfence{secrets.token_hex(8)}"
    # Without network access a download would only take time to fail.
    offline = {} if "HTTPS_PROXY" in sandbox.spec.env else {"GOPROXY": "off"}
    env = {**offline, **sandbox.spec.env}
    directories = {path.rpartition("/")[0] for path in tests.values()} if canary else set[str]()
    added = await _add_canaries(sandbox, directories, mark)
    tests |= {f"{path.rpartition('/')[0]}:Test{mark}": path for path in added}
    try:
        builder, ended, text = await run_for_output(
            check, sandbox, _COMMAND.sub(f"go test -json{_only(check)}", check.command), env
        )
    finally:
        with anyio.move_on_after(_FIND_S, shield=True):
            for path in added:
                with suppress(SandboxError):
                    await sandbox.remove(path)
    read_go(text, builder, tests=tests, module=module)
    return build_report(
        check, builder, ended, canary=mark if canary else "", guarded=added, by_directory=True
    )


def _only(check: Check) -> str:
    match = _ID.fullmatch(check.only or "")
    return f" -run '^{match[1]}$'" if match else ""


async def _find_tests(sandbox: "Sandbox") -> dict[str, str]:
    """Map `directory:Function` of each test function to its file."""
    pattern = r"^func \(Test\|Example\|Fuzz\|Benchmark\)[A-Za-z0-9_]*("
    command = ["grep", "-rH", "--include=*_test.go", "-o", "-e", pattern, "."]
    found = await sandbox.run(command, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    tests = dict[str, str]()
    for line in found.stdout.splitlines():
        if match := _FUNCTION.match(line):
            tests[f"{match[1].rpartition('/')[0]}:{match[2]}"] = match[1]
    return tests


async def _module(sandbox: "Sandbox") -> str:
    """Return the module's path from `go.mod`; empty if there is none."""
    try:
        text = (await sandbox.read_file("go.mod", limit_bytes=100_000)).decode("utf-8", "replace")
    except SandboxFileError:
        return ""
    match = re.search(r"^module\s+\"?([^\s\"]+)", text, re.MULTILINE)
    return match[1] if match else ""


async def _add_canaries(sandbox: "Sandbox", directories: Collection[str], mark: str) -> list[str]:
    """Add a test that must fail to each package that has tests. Return the files that were created."""
    if not directories:
        return []
    command = ["grep", "-rHm1", "--include=*_test.go", "-e", "^package [A-Za-z0-9_]*", "."]
    found = await sandbox.run(command, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    packages = dict[str, str]()
    for line in found.stdout.splitlines():
        if match := re.match(r"^(?:\./)?(.+?):package (\w+)", line):
            packages[match[1].rpartition("/")[0]] = match[2]
    added = []
    for directory, package in sorted(packages.items())[:_MAX_DIRECTORIES]:
        if directory in directories:
            path = f"{directory}/zz_{mark.lower()}_test.go".lstrip("/")
            text = f'package {package}\n\nimport "testing"\n\nfunc Test{mark}(t *testing.T) {{ t.Fatal("must fail") }}\n'
            await sandbox.write_file(path, text.encode())
            added.append(path)
    return added


def read_go(text: str, builder: ReportBuilder, *, tests: Mapping[str, str], module: str) -> None:
    """Parse the output of `go test -json`.

    Args:
        text: Events and other lines.
        builder: Receives the results and problems.
        tests: `directory:Function` to file, as found in the sources.
        module: The module's path; what follows it in a package's path is the package's directory.
    """
    printed, plain, ends = dict[str, list[str]](), list[str](), dict[str, str]()
    running = set[str]()
    for line in text.splitlines():
        event = _event(line)
        if event is None:
            plain.append(line)
            continue
        builder.started_runners = 1
        name = f"{event.Package}.{event.Test}" if event.Test else event.Package
        if event.Action == "build-output":
            plain.append(event.Output.rstrip("\n"))
        elif event.Action == "output" and len(lines := printed.setdefault(name, [])) < _MAX_LINES:
            lines.append(event.Output)
        elif event.Action == "run" and event.Test:
            running.add(name)
            builder.collect(name, _file(event, tests, module))
        elif event.Action in _OUTCOMES and event.Test:
            detail = "" if event.Action == "pass" else "".join(printed.get(name, ()))
            builder.add(result(name, _OUTCOMES[event.Action], _file(event, tests, module), detail))
        elif event.Action in _OUTCOMES:
            ends[event.Package] = event.Action
    broken = _add_compiler_errors(plain, builder, module)
    explained = {f"{module}/{directory}".rstrip("/") for directory in broken}
    _add_failed_packages(builder, ends, plain, printed, explained)


def _event(line: str) -> _Event | None:
    try:
        return _EVENTS.decode(line) if line.startswith("{") else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _file(event: _Event, tests: Mapping[str, str], module: str) -> str | None:
    directory = event.Package.removeprefix(module).strip("/")
    return tests.get(f"{directory}:{event.Test.split('/')[0]}")


def _add_failed_packages(
    builder: ReportBuilder,
    ends: dict[str, str],
    plain: list[str],
    printed: Mapping[str, list[str]],
    explained: Collection[str],
) -> None:
    """Add a result for each package that failed without a failed test: it was not built, or its run was aborted."""
    for line in plain:
        if match := _FAILED.match(line):
            builder.started_runners = 1
            ends[match[1]] = "fail"
    red = {
        each.id.rpartition(".")[0] for each in builder.results.values() if each.outcome in ("failed", "error")
    }
    for package, end in ends.items():
        if end == "fail" and package not in red and package not in explained:
            builder.add(result(package, "error", None, "".join(printed.get(package, ()))))


def _add_compiler_errors(plain: list[str], builder: ReportBuilder, module: str) -> set[str]:
    """Add one result for each file with compiler errors. Return the directories of these files."""
    by_file = dict[str, list[str]]()
    for line in plain:
        if match := _COMPILER.match(line):
            by_file.setdefault(match[1], []).append(match[2])
    for file, messages in by_file.items():
        name = PurePosixPath(file).as_posix()
        cause = main_cause([classify_error(message, module) for message in messages])
        builder.add(result(name, "error", name, "\n".join(messages), cause))
    return {file.rpartition("/")[0] for file in by_file}


def classify_error(message: str, module: str) -> Cause:
    """Classify a compiler error by its message."""
    if match := _NO_PACKAGE.search(message):
        is_own = bool(module) and (match[1] + "/").startswith(module + "/")
        return Cause("absent" if is_own else "foreign", message, match[1])
    if _UNPARSABLE.match(message):
        return Cause("broken", message)
    return Cause("absent" if "undefined" in message else "compiler", message)
