"""Which files each runner collects tests from, and why it did not collect those of a file."""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from ringfence.check.suite.finders import NODE_TESTS, PYTHON_TESTS
from ringfence.check.suite.model import Check

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
    ".rs": re.compile(rb"#!?\[[^\]\n]*(?:test|case)|proptest!|quickcheck!"),
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
