"""Runs Maven's tests, and parses Surefire's XML reports and the compiler's errors in Maven's output.

The XML comes from inside the sandbox: documents with a document type or entities are refused, and nothing is resolved.
"""

import re
from contextlib import suppress
from typing import TYPE_CHECKING
from xml.parsers import expat

from ringfence.check.protected_names import JAVA_LIBRARIES
from ringfence.check.report import Cause, Check, Report
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.base import build_report, main_cause, result, run_for_output
from ringfence.errors import SandboxFileError

if TYPE_CHECKING:
    from ringfence.sandbox import Sandbox


_COMPILER = re.compile(r"^\[ERROR\] (/\S+\.java):\[\d+,\d+\] (.+)$")
_NO_PACKAGE = re.compile(r"^package (\S+) does not exist")
_UNPARSABLE = re.compile(
    r"expected|illegal |reached end of file|not a statement|unclosed|class, interface|orphaned|malformed|invalid method"
)
_TOTAL = re.compile(
    r"^\[\w+\] Tests run: (\d+), Failures: (\d+), Errors: (\d+), Skipped: (\d+)\s*$", re.MULTILINE
)
_MAX_REPORTS = 2000
_MAX_REPORT_BYTES = 8_000_000
_MAX_BYTES = 128_000_000
_MAX_TEXT_CHARS = 20_000
_LISTING_BYTES = 1_000_000
_FIND_S = 60.0
_FIND_REPORTS = ["find", ".", "-type", "f", "-path", "*/target/surefire-reports/*", "-name", "TEST-*.xml"]
_FIND_LIBRARIES = ["find", ".", "-type", "f", "(", "-false"]
_FIND_LIBRARIES += [
    word
    for pattern in JAVA_LIBRARIES
    for word in ("-o", "-path", f"*/target/classes/{pattern.removesuffix('*')}")
]
_FIND_LIBRARIES += [")", "-print0"]
_MAX_LISTED = 3


class UnsafeXml(ValueError):
    """The XML has a document type or an entity, is nested too deeply, or is not well-formed."""


async def run_maven(check: Check, sandbox: "Sandbox") -> Report:
    """Run Maven's tests. Arguments and errors as `run_check`; there is no canary."""
    # Reports of an earlier run, or committed ones, would count as results.
    await sandbox.run([*_FIND_REPORTS, "-delete"], timeout_s=_FIND_S)
    builder, ended, text = await run_for_output(check, sandbox, check.command, {})
    find = [*_FIND_REPORTS, "-print0"]
    found = await sandbox.run(find, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    paths = [path for path in found.stdout.split("\0") if path]
    if len(paths) > _MAX_REPORTS or found.stdout_total > _LISTING_BYTES:
        builder.add_problem(f"more than {_MAX_REPORTS} reports were written")
    sources = await _sources(sandbox)
    read_bytes = 0
    for path in sorted(paths)[:_MAX_REPORTS]:
        with suppress(SandboxFileError):
            data = await sandbox.read_file(path, limit_bytes=_MAX_REPORT_BYTES)
            read_bytes += len(data)
            if read_bytes > _MAX_BYTES:
                builder.add_problem(f"reports of more than {_MAX_BYTES} bytes were written")
                break
            read_surefire(data, builder, sources)
            continue
        builder.add_problem(f"the report {path} cannot be read, or is larger than {_MAX_REPORT_BYTES} bytes")
    read_maven(text, builder, sandbox.workspace)
    built = await sandbox.run(_FIND_LIBRARIES, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    for path in built.stdout.split("\0")[:_MAX_LISTED]:
        if path:
            builder.add_problem(
                f"the project builds {path}, which is loaded in place of a library that runs the tests"
            )
    return build_report(check, builder, ended, canary="")


async def _sources(sandbox: "Sandbox") -> dict[str, str]:
    """Map the fully qualified name of each test class to its file."""
    command = ["find", ".", "-type", "f", "-path", "*/src/test/*", "-name", "*.java", "-print0"]
    found = await sandbox.run(command, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    paths = [path.removeprefix("./") for path in found.stdout.split("\0") if path.endswith(".java")]
    return {
        re.sub(r"^.*src/test/\w+/", "", path).removesuffix(".java").replace("/", "."): path for path in paths
    }


def read_surefire(data: bytes, builder: ReportBuilder, sources: dict[str, str]) -> None:
    """Add the results of one report to the builder; a document that is refused is a problem."""
    try:
        cases, count = parse_surefire(data)
    except UnsafeXml as exc:
        builder.add_problem(f"a report of Surefire's cannot be read: {exc}")
        return
    builder.started_runners = 1
    if count is not None and count != len(cases):
        builder.add_problem(f"a report of Surefire's counts {count} tests and holds {len(cases)}")
    for owner, name, outcome, kind, text in cases:
        cause = Cause(kind.rpartition(".")[2], text[:500]) if kind else None
        file = sources.get(owner.split("$")[0])
        builder.add(result(f"{owner}.{name}", outcome, file, text, cause))


Case = tuple[str, str, str, str, str]
"""Class, test, outcome, type of the exception, text."""


def parse_surefire(data: bytes) -> tuple[list[Case], int | None]:
    """Parse one report. Return its test cases, and the number of test cases that it declares, if it does.

    Raises:
        UnsafeXml: The report has a document type or entities, is nested too deeply, or is not well-formed.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError) as exc:
        raise UnsafeXml(str(exc)[:200]) from exc
    return reader.cases, reader.declared_count


def _refuse(*_args: object) -> None:
    raise UnsafeXml("it has a document type or entities")


_OUTCOMES = {"failure": "failed", "error": "error", "skipped": "skipped"}
_MAX_DEPTH = 20


class _Reader:
    """Handles expat's events. Reruns (`rerunFailure`, `flakyFailure`) are ignored."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.declared_count: int | None = None
        self._depth = 0
        self._case: list[str] | None = None
        self._is_reading = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnsafeXml(f"its elements are nested more than {_MAX_DEPTH} levels deep")
        if name == "testsuite" and self._depth == 1:
            number = attributes.get("tests", "")
            self.declared_count = int(number) if re.fullmatch(r"\d{1,9}", number) else None
        elif name == "testcase" and self._depth == 2:
            self._case = [attributes.get("classname", ""), attributes.get("name", ""), "passed", "", ""]
        elif self._case is not None and name in _OUTCOMES:
            self._case[2], self._case[3] = _OUTCOMES[name], attributes.get("type", "")
            self._case[4] = attributes.get("message", "")[:_MAX_TEXT_CHARS]
            self._is_reading = name != "skipped"

    def text(self, data: str) -> None:
        """Handle character data."""
        if self._is_reading and self._case is not None and len(self._case[4]) < _MAX_TEXT_CHARS:
            self._case[4] += data

    def end(self, name: str) -> None:
        """Handle the end of an element."""
        self._depth -= 1
        if name in _OUTCOMES:
            self._is_reading = False
        elif name == "testcase" and self._case is not None:
            owner, test, outcome, kind, text = self._case
            self.cases.append((owner, test, outcome, kind, text))
            self._case = None


def read_maven(text: str, builder: ReportBuilder, workspace: str) -> None:
    """Parse Maven's output: compare its totals with the results in the builder, and add compiler errors."""
    totals = [tuple(map(int, match)) for match in _TOTAL.findall(text)]
    if totals:
        builder.started_runners = 1
        count = sum(total[0] for total in totals)
        if count < len(builder.results):
            builder.add_problem(f"Maven counts {count} tests, its reports {len(builder.results)}")
        elif count > 0 and not builder.results:
            builder.add_problem(f"Maven counts {count} tests, and there are no reports")
    by_file = dict[str, list[str]]()
    for line in text.splitlines():
        if match := _COMPILER.match(line):
            messages = by_file.setdefault(match[1].removeprefix(workspace.rstrip("/") + "/"), [])
            if match[2] not in messages:
                messages.append(match[2])
    for file, messages in by_file.items():
        builder.started_runners = 1
        cause = main_cause([classify_error(message) for message in messages])
        builder.add(result(file, "error", file, "\n".join(messages), cause))


def classify_error(message: str) -> Cause:
    """Classify a compiler error by its message.

    A missing package is `foreign` at first: whether it is one of the project's own is decided where the project's
    files are known.
    """
    if match := _NO_PACKAGE.match(message):
        return Cause("foreign", message, match[1])
    if _UNPARSABLE.search(message):
        return Cause("broken", message)
    return Cause("absent" if "cannot find symbol" in message else "compiler", message)
