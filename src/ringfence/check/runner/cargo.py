"""Runs `cargo test` and parses its text output: its machine-readable format is not stable yet.

Tests can print lines that look like results. The counts in a binary's summary must therefore match the results.
"""

import re
import shlex
from typing import TYPE_CHECKING

from ringfence.check.report import Cause, Check, Report
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.base import build_report, main_cause, result, run_for_output

if TYPE_CHECKING:
    from ringfence.sandbox import Sandbox


_RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+) \(.+\)$|^\s+Doc-tests (\S+)$")
_TEST = re.compile(
    r"^test (.+?)(?: - should panic| - compile| - compile fail)? \.\.\. (ok|FAILED|ignored)(?:, .*)?$"
)
_SUMMARY = re.compile(r"^test result: (ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_DETAIL = re.compile(r"^---- (.+) stdout ----$")
_ERROR = re.compile(r"^error(?:\[(E\d+)\])?: (.+)$")
_LOCATION = re.compile(r"^\s+--> ([^:]+):\d+:\d+$")
_UNLINKED = re.compile(
    r"use of (?:undeclared|unresolved) (?:crate|module)(?: or (?:module|unlinked crate))? `(\w+)`"
)
_OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
_ABSENT = frozenset(
    {"E0425", "E0432", "E0433", "E0412", "E0599", "E0405", "E0560", "E0609", "E0061", "E0583"}
)
_MAX_LINES = 200


async def run_cargo(check: Check, sandbox: "Sandbox") -> Report:
    """Run `cargo test`. Arguments and errors as `run_check`; there is no canary."""
    command = check.command if check.only is None else _select(check.command, check.only.partition("::")[2])
    builder, ended, text = await run_for_output(check, sandbox, command, {"CARGO_TERM_COLOR": "never"})
    read_cargo(text, builder)
    return build_report(check, builder, ended, canary="")


def _select(command: str, name: str) -> str:
    """Return the command that runs only the test of this name."""
    before, dashes, after = command.partition(" -- ")
    filtered = re.sub(
        r"(cargo\s+(?:\+\S+\s+)?(?:test|t)\b)",
        lambda match: f"{match[1]} {shlex.quote(name)}",
        before,
        count=1,
    )
    return f"{filtered} -- --exact {after}".rstrip() if dashes else f"{filtered} -- --exact"


class _Binary:
    """One test binary's part of the output."""

    def __init__(self, name: str, *, is_doc: bool) -> None:
        self.name = name
        self.is_doc = is_doc
        self.outcomes = dict[str, str]()
        self.details = dict[str, list[str]]()
        self.has_summary = False


def read_cargo(text: str, builder: ReportBuilder) -> None:
    """Parse the output of `cargo test`, and add its results and problems to the builder."""
    binary: _Binary | None = None
    binaries = list[_Binary]()
    detail: list[str] | None = None
    for line in text.splitlines():
        if match := _RUNNING.match(line):
            binary, detail = _Binary(match[1] or f"doc {match[2]}", is_doc=match[1] is None), None
            binaries.append(binary)
            builder.started_runners = 1
        elif binary is None:
            continue
        elif match := _TEST.match(line):
            binary.outcomes[match[1]] = _worse(binary.outcomes.get(match[1]), match[2])
        elif match := _DETAIL.match(line):
            detail = binary.details.setdefault(match[1], [])
        elif match := _SUMMARY.match(line):
            _check_summary(binary, match, builder)
            detail = None
        elif detail is not None and line != "failures:" and len(detail) < _MAX_LINES:
            detail.append(line)
    for each in binaries:
        _add_results(each, builder)
    _add_compiler_errors(text, builder)


def _worse(known: str | None, outcome: str) -> str:
    return "FAILED" if "FAILED" in (known, outcome) else outcome


def _check_summary(binary: _Binary, match: re.Match[str], builder: ReportBuilder) -> None:
    counts = [list(binary.outcomes.values()).count(word) for word in ("ok", "FAILED", "ignored")]
    summary = [int(number) for number in match.groups()[1:4]]
    if binary.has_summary or (summary != counts and not binary.is_doc):
        builder.add_problem(
            f"the summary of {binary.name} does not match its tests: it counts {summary}, the output has {counts}"
        )
    binary.has_summary = True


def _add_results(binary: _Binary, builder: ReportBuilder) -> None:
    if not binary.has_summary:
        builder.add_problem(f"{binary.name} broke off before its summary")
    file = None if binary.is_doc else binary.name
    for name, word in binary.outcomes.items():
        source = name.split(" - ")[0] if binary.is_doc else file
        detail = "\n".join(binary.details.get(name, ())).strip() if word == "FAILED" else ""
        builder.add(result(f"{binary.name}::{name}", _OUTCOMES[word], source, detail))


def _add_compiler_errors(text: str, builder: ReportBuilder) -> None:
    """Add one result for each file with compiler errors; an error belongs to the first file that it points at."""
    by_file = dict[str, list[tuple[str, str, str]]]()
    block: list[str] = []
    for line in [*text.splitlines(), "error: end"]:
        if _ERROR.match(line) or not line:
            _parse_error(block, by_file)
            block = []
        if _ERROR.match(line) or (block and len(block) < _MAX_LINES):
            block.append(line)
    for file, errors in by_file.items():
        cause = main_cause([classify_error(*each) for each in errors])
        builder.started_runners = 1
        builder.add(result(file, "error", file, "\n\n".join(each[2] for each in errors), cause))


def _parse_error(block: list[str], by_file: dict[str, list[tuple[str, str, str]]]) -> None:
    head = _ERROR.match(block[0]) if block else None
    file = next((match[1] for line in block if (match := _LOCATION.match(line))), None)
    if head and file:
        by_file.setdefault(file, []).append((head[1] or "", head[2], "\n".join(block)))


def classify_error(code: str, message: str, block: str) -> Cause:
    """Classify a compiler error. An error without a code comes from the parser or a macro."""
    if match := _UNLINKED.search(block):
        return Cause("foreign", f"{code} {message}", match[1])
    if not code:
        return Cause("broken", message)
    return Cause("absent" if code in _ABSENT else "compiler", f"{code} {message}")
