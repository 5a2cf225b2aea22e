"""`cargo test`: what it prints; its machine-readable form is not stable yet.

Tests may print lines that look like results. Each binary's summary counts its own, and must count the same.
"""

import re
import shlex
from typing import TYPE_CHECKING

from ringfence.check.report import Cause, Check, Report
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.base import build_report, result, run_for_output, worst

if TYPE_CHECKING:
    from ringfence.sandbox import Sandbox


_RUNNING = re.compile(r"^\s+Running (?:unittests )?(\S+) \(.+\)$|^\s+Doc-tests (\S+)$")
_TEST = re.compile(
    r"^test (.+?)(?: - should panic| - compile| - compile fail)? \.\.\. (ok|FAILED|ignored)(?:, .*)?$"
)
_SUMMARY = re.compile(r"^test result: (ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_DETAIL = re.compile(r"^---- (.+) stdout ----$")
_ERROR = re.compile(r"^error(?:\[(E\d+)\])?: (.+)$")
_PLACE = re.compile(r"^\s+--> ([^:]+):\d+:\d+$")
_UNLINKED = re.compile(
    r"use of (?:undeclared|unresolved) (?:crate|module)(?: or (?:module|unlinked crate))? `(\w+)`"
)
_OUTCOMES = {"ok": "passed", "FAILED": "failed", "ignored": "skipped"}
_ABSENT = frozenset(
    {"E0425", "E0432", "E0433", "E0412", "E0599", "E0405", "E0560", "E0609", "E0061", "E0583"}
)
_MOST_LINES = 200


async def run_cargo(check: Check, sandbox: "Sandbox") -> Report:
    """Run `cargo test`. Arguments and errors as `run_check`; there is no canary."""
    command = check.command if check.only is None else _alone(check.command, check.only.partition("::")[2])
    builder, ended, text = await run_for_output(check, sandbox, command, {"CARGO_TERM_COLOR": "never"})
    read_cargo(text, builder)
    return build_report(check, builder, ended, canary="")


def _alone(command: str, name: str) -> str:
    before, dashes, after = command.partition(" -- ")
    named = re.sub(
        r"(cargo\s+(?:\+\S+\s+)?(?:test|t)\b)",
        lambda match: f"{match[1]} {shlex.quote(name)}",
        before,
        count=1,
    )
    return f"{named} -- --exact {after}".rstrip() if dashes else f"{named} -- --exact"


class _Binary:
    """One test binary's part of the output."""

    def __init__(self, name: str, *, is_doc: bool) -> None:
        self.name = name
        self.is_doc = is_doc
        self.outcomes = dict[str, str]()
        self.details = dict[str, list[str]]()
        self.is_summed = False


def read_cargo(text: str, builder: ReportBuilder) -> None:
    """Take what `cargo test` printed."""
    binary: _Binary | None = None
    binaries = list[_Binary]()
    showing: list[str] | None = None
    for line in text.splitlines():
        if match := _RUNNING.match(line):
            binary, showing = _Binary(match[1] or f"doc {match[2]}", is_doc=match[1] is None), None
            binaries.append(binary)
            builder.begun = 1
        elif binary is None:
            continue
        elif match := _TEST.match(line):
            binary.outcomes[match[1]] = _worse(binary.outcomes.get(match[1]), match[2])
        elif match := _DETAIL.match(line):
            showing = binary.details.setdefault(match[1], [])
        elif match := _SUMMARY.match(line):
            _sum(binary, match, builder)
            showing = None
        elif showing is not None and line != "failures:" and len(showing) < _MOST_LINES:
            showing.append(line)
    for each in binaries:
        _take(each, builder)
    _compiler(text, builder)


def _worse(known: str | None, told: str) -> str:
    return "FAILED" if "FAILED" in (known, told) else told


def _sum(binary: _Binary, match: re.Match[str], builder: ReportBuilder) -> None:
    counts = [list(binary.outcomes.values()).count(word) for word in ("ok", "FAILED", "ignored")]
    told = [int(number) for number in match.groups()[1:4]]
    if binary.is_summed or (told != counts and not binary.is_doc):
        builder.add_problem(
            f"the summary of {binary.name} does not fit its tests: it counts {told}, {counts} were seen"
        )
    binary.is_summed = True


def _take(binary: _Binary, builder: ReportBuilder) -> None:
    if not binary.is_summed:
        builder.add_problem(f"{binary.name} broke off before its summary")
    file = None if binary.is_doc else binary.name
    for name, word in binary.outcomes.items():
        source = name.split(" - ")[0] if binary.is_doc else file
        detail = "\n".join(binary.details.get(name, ())).strip() if word == "FAILED" else ""
        builder.add(result(f"{binary.name}::{name}", _OUTCOMES[word], source, detail))


def _compiler(text: str, builder: ReportBuilder) -> None:
    """Errors of the compiler, by the file that each points at first."""
    said = dict[str, list[tuple[str, str, str]]]()
    block: list[str] = []
    for line in [*text.splitlines(), "error: end"]:
        if _ERROR.match(line) or not line:
            _take_error(block, said)
            block = []
        if _ERROR.match(line) or (block and len(block) < _MOST_LINES):
            block.append(line)
    for file, errors in said.items():
        cause = worst([cause_of(*each) for each in errors])
        builder.begun = 1
        builder.add(result(file, "error", file, "\n\n".join(each[2] for each in errors), cause))


def _take_error(block: list[str], said: dict[str, list[tuple[str, str, str]]]) -> None:
    head = _ERROR.match(block[0]) if block else None
    place = next((match[1] for line in block if (match := _PLACE.match(line))), None)
    if head and place:
        said.setdefault(place, []).append((head[1] or "", head[2], "\n".join(block)))


def cause_of(code: str, message: str, block: str) -> Cause:
    """What an error of the compiler means. One without a code is the parser's or a macro's."""
    if match := _UNLINKED.search(block):
        return Cause("foreign", f"{code} {message}", match[1])
    if not code:
        return Cause("broken", message)
    return Cause("absent" if code in _ABSENT else "compiler", f"{code} {message}")
