"""Decides whether new tests are red for the right reason: the feature is missing, and no test itself is broken."""

import re
from collections import Counter
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from ringfence.check.baseline import function_of, is_new_test
from ringfence.check.discovery import NODE_TESTS, PYTHON_TESTS
from ringfence.check.report import RED, Cause, Check, Report, TestResult
from ringfence.frozen import frozen

_MAX_COMPLAINTS = 20


_ROOTS = ("src", "lib", "python", "packages")
_DOMAIN = 3


@frozen
class Project:
    """What counts as the project's own, so that its absence is something to be built."""

    files: Collection[str] = ()
    """Paths of the repository, and those that the story names, relative to the workspace."""
    text: str = ""
    """The story: a module that it names is to be built."""

    def owns(self, module: str) -> bool:
        """Whether a module (`calc.core`, or of a compiled language `calc::core`, `com.acme.calc`) is its own."""
        first = re.split(r"[.:/]", module, maxsplit=1)[0]
        if not first:
            return True  # relative
        if re.search(rf"(?<![\w-]){re.escape(first)}(?![\w-])", self.text):
            return True
        return any(_top(PurePosixPath(path).parts) == first for path in self.files)

    def has_package(self, name: str) -> bool:
        """Whether it has a package of Java's like this one: by its first part, or two where that is a domain."""
        parts = name.split(".")
        top = "/".join(parts[: 2 if len(parts[0]) <= _DOMAIN else 1])
        return any(f"/{top}/" in f"/{path}" for path in self.files)


def _top(parts: tuple[str, ...]) -> str:
    """Name under which Python would import what lies at a path."""
    while len(parts) > 1 and parts[0] in _ROOTS:
        parts = parts[1:]
    return parts[0].removesuffix(".py") if parts else ""


def red_for_the_right_reason(
    report: Report,
    written: Collection[str],
    baseline: Report | None = None,
    *,
    project: Project | None = None,
    checks: Collection[Check] = (),
) -> list[str]:
    """Why new tests, run on the base, are not the red that a story begins with; empty: they are.

    At least one new or changed test must have been collected. Each of them must fail because what is to be built is
    absent or does otherwise, and none because the test itself is broken. The other files that were written may be
    packages, fixtures, helpers and data: they need not hold a test.

    Args:
        report: Of a run on the base with the new tests.
        written: Paths of the files that were written, relative to the workspace.
        baseline: Of a run on the base without them. None: there was none.
        project: What counts as the project's own; None: only what is imported by a relative path.
        checks: What ran the tests: a file that was not collected is compared with the rules of their runners.
    """
    complaints = (
        [] if report.is_complete else [f"the run of the new tests is no proof: {why}" for why in _why(report)]
    )
    own, new = project or Project(), _new_tests(report, written, baseline)
    for file in sorted({each.file or each.id for each in new}):
        complaints += _of_file(file, [each for each in new if (each.file or each.id) == file], own)
    if not written:
        complaints.append("no file with tests was written")
    elif not new:
        complaints += _without_tests(report, written, checks, own)
    if len(complaints) > _MAX_COMPLAINTS:
        complaints[_MAX_COMPLAINTS:] = [f"and {len(complaints) - _MAX_COMPLAINTS} more"]
    return complaints


def _why(report: Report) -> tuple[str, ...]:
    return report.problems or (f"it was ended by {report.ended_by}",)


def _new_tests(report: Report, written: Collection[str], baseline: Report | None) -> list[TestResult]:
    """New tests, wherever they are collected from, and those of the written files that have become red.

    A file that passes as one result holds no tests: node reports a helper so.
    """
    found = []
    known = {function_of(name) for name in baseline.results} if baseline is not None else set[str]()
    for each in sorted(report.results.values(), key=lambda one: one.id):
        is_written = each.file in written
        before = baseline.results.get(each.id) if baseline is not None else None
        if each.id == each.file:
            is_new = is_written and (each.outcome in RED or (each.outcome == "skipped" and before is None))
        elif before is None:
            # The ids of a function's cases may differ from run to run: those that pass are no new tests.
            is_new = is_written or (
                baseline is not None
                and is_new_test(each, baseline)
                and (each.outcome in RED or function_of(each.id) not in known)
            )
        else:
            is_new = is_written and each.outcome in RED and before.outcome not in RED
        found += [each] if is_new else []
    return _without_renamed(found, report, baseline)


def _without_renamed(new: list[TestResult], report: Report, baseline: Report | None) -> list[TestResult]:
    """New tests without those that pass in place of others of their files that passed before and are gone.

    The judge is shown the tests that are gone (`baseline.removed`).
    """
    gone = Counter(
        each.file
        for each in (baseline.results.values() if baseline is not None else ())
        if each.outcome == "passed" and each.id not in report.results
    )
    kept = []
    for each in new:
        is_renamed = each.outcome == "passed" and gone[each.file] > 0
        gone[each.file] -= is_renamed
        kept += [] if is_renamed else [each]
    return kept


def _without_tests(
    report: Report, written: Collection[str], checks: Collection[Check], project: Project
) -> list[str]:
    """Why none of the written files brought a new test: those that look like tests, else all."""
    collected = {each.file for each in report.results.values() if each.id != each.file}
    tests = [file for file in sorted(written) if is_test_file(file, checks)] or sorted(written)
    return [
        f"{file}: holds no new test"
        if file in collected
        else f"{file}: none of its tests was collected; {why_not_collected(file, checks, project.files)}"
        for file in tests
    ]


def _of_file(file: str, new: list[TestResult], project: Project) -> list[str]:
    if all(each.outcome == "skipped" for each in new):
        return [f"{file}: all its new tests are skipped"]
    complaints = []
    for each in new:
        if each.outcome == "passed":
            complaints.append(f"{each.id}: passes before anything was built; it proves nothing")
        elif each.outcome == "skipped":
            complaints.append(f"{each.id}: is skipped")
        elif why := broken_because(each, project):
            complaints.append(f"{each.id}: is broken: {why}")
    return complaints


_SYNTAX = frozenset({"SyntaxError", "IndentationError", "TabError"})
_IMPORT = frozenset({"ModuleNotFoundError", "ImportError"})
_UNBOUND = frozenset({"NameError", "UnboundLocalError", "ReferenceError"})
_NOT_A_TEST = frozenset({"FixtureLookupError", "FixtureLookupErrorRepr", "UsageError", "ScopeMismatchError"})
_LAST_ERROR = re.compile(
    r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Failed|Exit))(?: \[\w+\])?(?:: (.*))?$", re.MULTILINE
)
_NODE_ABSENT = re.compile(r"Cannot find (?:module|package) '([^'\n]+)'")
_NODE_EXPORT = re.compile(r"requested module '([^'\n]+)' (?:does not provide an export|is a CommonJS module)")
_NO_MODULE = re.compile(r"No module named '([^']+)'")
_CANNOT_IMPORT = re.compile(r"cannot import name '[^']*' from (?:partially initialized module )?'([^']+)'")
_NO_FIXTURE = re.compile(r"fixture '[^'\n]+' not found")
_FILE = re.compile(r'File "([^"\n]+)", line \d+')
_SHOWN = 300


def broken_because(result: TestResult, project: Project) -> str | None:
    """Why the test itself is broken; None: it fails as it should while something is to be built."""
    cause = result.cause or cause_in(result.detail)
    if cause is None:
        is_file = result.id == result.file
        return "it cannot be loaded, and its runner does not say why" if is_file else None
    for read_cause in _READERS:
        if (why := read_cause(cause, result, project)) is not None:
            return why or None
    return None


def cause_in(detail: str) -> Cause | None:
    """The last exception that a Python traceback names."""
    errors, places = _LAST_ERROR.findall(detail), _FILE.findall(detail)
    if not errors:
        return None
    kind, message = errors[-1]
    return Cause(kind.rpartition(".")[2], message, None, places[-1] if places else None)


def _quoted(cause: Cause, extra: str = "") -> str:
    message = " ".join(cause.message.split())[:_SHOWN]
    return f"{cause.type}{': ' if message else ''}{message}{extra}"


def _syntax(cause: Cause, _result: TestResult, _project: Project) -> str | None:
    if cause.type not in _SYNTAX:
        return None
    return _quoted(cause)


def _by_compiler(cause: Cause, _result: TestResult, project: Project) -> str | None:
    """What a compiler's words were taken for when they were read."""
    if cause.type == "broken":
        return f"it cannot be compiled: {' '.join(cause.message.split())[:_SHOWN]}"
    if cause.type == "foreign":
        names = (cause.name or "").split()
        others = [name for name in names if not (project.owns(name) or project.has_package(name))]
        return _foreign(cause, others[0]) if others else ""
    return "" if cause.type in ("absent", "compiler") else None


def _foreign(cause: Cause, name: str) -> str:
    return _quoted(cause, f"; {name!r} is not installed, not of this project, and the story does not name it")


def _absent_in_node(cause: Cause, _result: TestResult, project: Project) -> str | None:
    """A module or an export that is not there: right if it is one of the project's."""
    match = _NODE_ABSENT.search(cause.message) or _NODE_EXPORT.search(cause.message)
    if match is None:
        return None
    name = match[1].removeprefix("file://")
    if name.startswith((".", "/", "#")) or project.owns(name):
        return ""
    return _foreign(cause, name)


def _absent(cause: Cause, result: TestResult, project: Project) -> str | None:
    """An import that fails: right if what is missing is the project's."""
    if cause.type not in _IMPORT:
        return None
    match = _NO_MODULE.search(cause.message) or _CANNOT_IMPORT.search(cause.message)
    name = match[1] if match else cause.name
    if name is None:
        # `Failed to import test module`, with the exception that matters in its text.
        inner = cause_in(cause.message) or cause_in(result.detail)
        if inner is None or (inner.type in _IMPORT and not _NO_MODULE.search(inner.message)):
            return _quoted(cause)
        return broken_because(TestResult(result.id, result.outcome, result.file, "", inner), project) or ""
    if project.owns(name):
        return ""
    return _quoted(
        cause,
        f"; {name.split('.')[0]!r} is not installed, not of this project, and the story does not name it",
    )


def _unbound(cause: Cause, result: TestResult, _project: Project) -> str | None:
    """Return the reason for a name that the test file itself does not define: no other file can provide it."""
    if cause.type not in _UNBOUND or cause.file is None or result.file is None:
        return None
    is_own = (
        PurePosixPath(cause.file).parts[-len(PurePosixPath(result.file).parts) :]
        == PurePosixPath(result.file).parts
    )
    return _quoted(cause, " in the test file itself") if is_own else None


def _fixture(cause: Cause, result: TestResult, _project: Project) -> str | None:
    if cause.type not in _NOT_A_TEST:
        return None
    match = _NO_FIXTURE.search(result.detail)
    return match[0] if match else _quoted(cause)


def _unloadable(cause: Cause, result: TestResult, _project: Project) -> str | None:
    """What a runner refuses by its own word, such as a marker that it does not know."""
    if result.id == result.file and cause.type in ("Failed", "CollectError"):
        return _quoted(cause)
    return None


_READERS: tuple[Callable[[Cause, TestResult, Project], str | None], ...] = (
    _by_compiler,
    _absent_in_node,
    _syntax,
    _absent,
    _unbound,
    _fixture,
    _unloadable,
)
"""Each returns why a test is broken, `""` if it is not, or None if it cannot decide."""


_FILES = {
    "pytest": PYTHON_TESTS,
    "unittest": ("test*.py",),
    "node": (*NODE_TESTS, "*.test.ts", "*.test.[cm]ts", "*.spec.[jt]s"),
    "go": ("*_test.go",),
    "cargo": ("*.rs",),
    "maven": ("Test*.java", "*Test.java", "*Tests.java", "*TestCase.java"),
}
"""Names of files that tests are looked for in."""
_RULES = {
    "pytest": "pytest collects functions `test_*` and methods of classes `Test*` of files `test_*.py` and `*_test.py`",
    "unittest": "unittest collects methods `test*` of `unittest.TestCase` of files `test*.py`",
    "node": "`node --test` collects `test(...)` of files such as `*.test.js` and of those in a directory `test`",
    "go": "`go test` collects functions `TestName(t *testing.T)` of files `*_test.go`",
    "cargo": "cargo collects functions with `#[test]` of files right in `tests/`, and of modules that these name",
    "maven": "Maven collects methods with `@Test` of files `*Test.java` and `Test*.java` in `src/test/java`",
}
_START = re.compile(r"(?:\s-s|\s--start-directory)[= ](\S+)|\bdiscover\s+([^\s-]\S*)")
_MARKS = {
    ".go": re.compile(rb"^func (?:Test|Example|Fuzz|Benchmark)", re.MULTILINE),
    ".rs": re.compile(rb"#!?\[[^\]\n]{0,500}?(?:test|case)|proptest!|quickcheck!"),
    ".java": re.compile(rb"@\w*(?:Test|Property|Theory|Factory)\b|\bTestCase\b"),
    ".kt": re.compile(rb"@\w*(?:Test|Property|Theory|Factory)\b|\bTestCase\b"),
}
"""What a file of a compiled language holds if it holds a test."""


def is_test_file(path: str, checks: Collection[Check]) -> bool:
    """Whether one of the runners looks for tests in a file of this name."""
    name = path.rpartition("/")[2]
    return any(
        fnmatchcase(name, pattern) for check in checks for pattern in _FILES.get(check.runner or "", ())
    )


def may_hold_tests(path: str, data: bytes) -> bool:
    """Whether a file may hold tests. False only for a file of a compiled language without the mark of any test.

    Compilers also report errors in files that only help tests, so a file that they name need not hold any.
    """
    mark = _MARKS.get(path[path.rfind(".") :])
    return mark is None or mark.search(data) is not None


def why_not_collected(path: str, checks: Collection[Check], files: Collection[str]) -> str:
    """What to do so that the tests of a file are collected, by the rules of the runners.

    Args:
        path: Of the file, relative to the workspace.
        checks: What ran the tests.
        files: Of the workspace.
    """
    reasons = [_reason(path, check, files) for check in checks if check.runner in _RULES]
    return "; ".join(reasons) or "put the file where the runner looks for tests, under a name that it takes"


def _reason(path: str, check: Check, files: Collection[str]) -> str:
    if check.runner == "unittest" and is_test_file(path, [check]):
        missing = _missing_packages(path, check.command, files)
        if missing:
            return (
                f"`{check.command}` looks only into directories that are packages: add the empty file"
                f"{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
            )
    return _RULES[check.runner or ""]


def _missing_packages(path: str, command: str, files: Collection[str]) -> list[str]:
    """The `__init__.py` that unittest needs on the way from where it starts to a file."""
    match = _START.search(command)
    start = "" if match is None else (match[1] or match[2]).strip("'\"").removeprefix("./").strip("/.")
    missing, directory = list[str](), path.rpartition("/")[0]
    while directory and directory != start:
        missing.insert(0, f"{directory}/__init__.py")
        directory = directory.rpartition("/")[0]
    return [each for each in missing if each not in files]
