"""Maven: Surefire's XML files, and the compiler's words. The XML comes from inside: no entity in it is ever resolved."""

import re
from contextlib import suppress
from typing import TYPE_CHECKING
from xml.parsers import expat

from ringfence.check.protected_names import JAVA_LIBRARIES
from ringfence.check.report import Cause, Check, Report
from ringfence.check.report_stream import ReportBuilder
from ringfence.check.runner.base import build_report, result, run_for_output, worst
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
_MOST_REPORTS = 2000
_LARGEST_REPORT = 8_000_000
_MOST_BYTES = 128_000_000
_MOST_TEXT = 20_000
_LISTING_BYTES = 1_000_000
_FIND_S = 60.0
_FIND = ["find", ".", "-type", "f", "-path", "*/target/surefire-reports/*", "-name", "TEST-*.xml"]


_FIND_LIBRARIES = ["find", ".", "-type", "f", "(", "-false"]
_FIND_LIBRARIES += [
    word
    for pattern in JAVA_LIBRARIES
    for word in ("-o", "-path", f"*/target/classes/{pattern.removesuffix('*')}")
]
_FIND_LIBRARIES += [")", "-print0"]
_MOST_NAMED = 3


class UnsafeXml(ValueError):
    """A document with a DTD or an entity, too deep, or no document at all."""


async def run_maven(check: Check, sandbox: "Sandbox") -> Report:
    """Run Maven's tests. Arguments and errors as `run_check`; there is no canary."""
    await sandbox.run(
        [*_FIND, "-delete"], timeout_s=_FIND_S
    )  # none of an earlier run, or of the repository's
    builder, ended, text = await run_for_output(check, sandbox, check.command, {})
    found = await sandbox.run([*_FIND, "-print0"], timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    paths = [path for path in found.stdout.split("\0") if path]
    if len(paths) > _MOST_REPORTS or found.stdout_total > _LISTING_BYTES:
        builder.add_problem(f"more than {_MOST_REPORTS} reports were written")
    sources = await _sources(sandbox)
    read_bytes = 0
    for path in sorted(paths)[:_MOST_REPORTS]:
        with suppress(SandboxFileError):
            data = await sandbox.read_file(path, limit_bytes=_LARGEST_REPORT)
            read_bytes += len(data)
            if read_bytes > _MOST_BYTES:
                builder.add_problem(f"reports of more than {_MOST_BYTES} bytes were written")
                break
            read_surefire(data, builder, sources)
            continue
        builder.add_problem(f"the report {path} cannot be read, or is larger than {_LARGEST_REPORT} bytes")
    read_maven(text, builder, sandbox.workspace)
    built = await sandbox.run(_FIND_LIBRARIES, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    for path in built.stdout.split("\0")[:_MOST_NAMED]:
        if path:
            builder.add_problem(
                f"the project builds {path}, which is taken in place of a library that runs the tests"
            )
    return build_report(check, builder, ended, canary="")


async def _sources(sandbox: "Sandbox") -> dict[str, str]:
    """Fully qualified class to its file of tests."""
    command = ["find", ".", "-type", "f", "-path", "*/src/test/*", "-name", "*.java", "-print0"]
    found = await sandbox.run(command, timeout_s=_FIND_S, output_limit_bytes=_LISTING_BYTES)
    paths = [path.removeprefix("./") for path in found.stdout.split("\0") if path.endswith(".java")]
    return {
        re.sub(r"^.*src/test/\w+/", "", path).removesuffix(".java").replace("/", "."): path for path in paths
    }


def read_surefire(data: bytes, builder: ReportBuilder, sources: dict[str, str]) -> None:
    """Take one report; one that is no proper document is a problem."""
    try:
        cases, told = parse_surefire(data)
    except UnsafeXml as exc:
        builder.add_problem(f"a report of Surefire's cannot be read: {exc}")
        return
    builder.begun = 1
    if told is not None and told != len(cases):
        builder.add_problem(f"a report of Surefire counts {told} tests and holds {len(cases)}")
    for owner, name, outcome, kind, text in cases:
        cause = Cause(kind.rpartition(".")[2], text[:500]) if kind else None
        file = sources.get(owner.split("$")[0])
        builder.add(result(f"{owner}.{name}", outcome, file, text, cause))


Case = tuple[str, str, str, str, str]
"""Class, test, outcome, type of what was thrown, text."""


def parse_surefire(data: bytes) -> tuple[list[Case], int | None]:
    """The cases of one report, and how many it says there are.

    Raises:
        UnsafeXml: It has a document type or entities, or is not well-formed.
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
    return reader.cases, reader.told


def _refuse(*_args: object) -> None:
    raise UnsafeXml("it has a document type or entities")


_BAD = {"failure": "failed", "error": "error", "skipped": "skipped"}
_DEEPEST = 20


class _Reader:
    """Takes expat's events. Reruns (`rerunFailure`, `flakyFailure`) decide nothing."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self.told: int | None = None
        self._depth = 0
        self._case: list[str] | None = None
        self._is_reading = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UnsafeXml("it is too deep")
        if name == "testsuite" and self._depth == 1:
            number = attributes.get("tests", "")
            self.told = int(number) if re.fullmatch(r"\d{1,9}", number) else None
        elif name == "testcase" and self._depth == 2:
            self._case = [attributes.get("classname", ""), attributes.get("name", ""), "passed", "", ""]
        elif self._case is not None and name in _BAD:
            self._case[2], self._case[3] = _BAD[name], attributes.get("type", "")
            self._case[4] = attributes.get("message", "")[:_MOST_TEXT]
            self._is_reading = name != "skipped"

    def text(self, data: str) -> None:
        """Characters."""
        if self._is_reading and self._case is not None and len(self._case[4]) < _MOST_TEXT:
            self._case[4] += data

    def end(self, name: str) -> None:
        """An element ends."""
        self._depth -= 1
        if name in _BAD:
            self._is_reading = False
        elif name == "testcase" and self._case is not None:
            owner, test, outcome, kind, text = self._case
            self.cases.append((owner, test, outcome, kind, text))
            self._case = None


def read_maven(text: str, builder: ReportBuilder, workspace: str) -> None:
    """Take what Maven printed: totals that must fit, and errors of the compiler."""
    totals = [tuple(map(int, match)) for match in _TOTAL.findall(text)]
    if totals:
        builder.begun = 1
        told = sum(total[0] for total in totals)
        if told < len(builder.results):
            builder.add_problem(f"Maven counts {told} tests, its reports {len(builder.results)}")
        elif told > 0 and not builder.results:
            builder.add_problem(f"Maven counts {told} tests, and there are no reports")
    said = dict[str, list[str]]()
    for line in text.splitlines():
        if match := _COMPILER.match(line):
            messages = said.setdefault(match[1].removeprefix(workspace.rstrip("/") + "/"), [])
            if match[2] not in messages:
                messages.append(match[2])
    for file, messages in said.items():
        builder.begun = 1
        cause = worst([cause_of(message) for message in messages])
        builder.add(result(file, "error", file, "\n".join(messages), cause))


def cause_of(message: str) -> Cause:
    """What a message of the compiler means; whose a package is, the project decides (`foreign`)."""
    if match := _NO_PACKAGE.match(message):
        return Cause("foreign", message, match[1])
    if _UNPARSABLE.search(message):
        return Cause("broken", message)
    return Cause("absent" if "cannot find symbol" in message else "compiler", message)
