"""Compares a report with earlier ones: which tests must have run and passed, and which are newly red.

Tests are compared by their ids. Expected are those that passed on the commit with the story's tests, and those of the
story that were red there. What passed before the story and was not run there because a file could not be loaded is
expected, too; what the test writer removed is not.
"""

import re
from collections.abc import Collection

from ringfence.check.report import Check, Report, TestResult
from ringfence.frozen import frozen

_GO_FUNCTION = re.compile(r"(.*\.(?:Test|Example|Fuzz|Benchmark)\w*)/.*", re.DOTALL)
_COMPILED_TOGETHER = ("cargo", "maven")
"""Runners that run nothing at all where one file cannot be compiled."""
_MAX_SHOWN = 20
_SHOWN_CHARS = 200


@frozen
class Expected:
    """Tests that must have passed."""

    ids: frozenset[str] = frozenset()
    unstable: frozenset[str] = frozenset()
    """Functions whose ids differ from run to run, as their parameters do: one passed test of each is expected, none that
    is skipped."""

    def missing(self, report: Report, baseline: Report | None = None) -> list[str]:
        """Which were not run, or are skipped now, by id.

        A file or package that could not be loaded is there if tests of it were run, none skipped.

        Args:
            report: Of a run of the whole suite.
            baseline: What was skipped there may be skipped now.
        """
        by_function: dict[str, list[TestResult]] = {}
        for each in report.results.values():
            by_function.setdefault(function_of(each.id), []).append(each)
        gone, missing = set[str](), dict[str, set[str]]()
        for name in self.ids:
            function, found = function_of(name), report.results.get(name)
            if function in self.unstable:
                parts = by_function.get(function, [])
            else:
                parts = [found] if found is not None else _parts(report, name)
            if not parts:
                gone.add(name)
                missing.setdefault(function, set()).add(name)
            gone |= {each.id for each in parts if each.outcome == "skipped"}
        for function, cases in missing.items():
            # The ids of a story's own cases may differ from run to run: as many others of the function do as well.
            others = [each for each in by_function.get(function, ()) if each.id not in self.ids]
            if (
                cases != {function}
                and len(others) >= len(cases)
                and all(each.outcome == "passed" for each in others)
            ):
                gone -= cases
        if baseline is not None:
            gone -= {each.id for each in baseline.results.values() if each.outcome == "skipped"}
        return sorted(gone)


def expected_tests(
    check: Check, before: Report | None, red: Report | None, changed: Collection[str]
) -> Expected:
    """What a candidate's tests must include.

    Args:
        check: What runs them.
        before: Of a run before the story; None: the check is the story's own.
        red: Of a run with the story's tests, before it was built; None: the check runs no tests.
        changed: Files that the test writer wrote, changed or removed.
    """
    if before is None or red is None:
        return Expected()
    passed = {each.id for each in before.results.values() if each.outcome == "passed"} - removed(
        check, before, red, changed
    )
    # A file that could not be loaded is reported as a test of that name: its tests are not known by then.
    own = {each.id for each in red.red() if each.id != each.file}
    now = {each.id for each in red.results.values() if each.outcome == "passed"}
    return Expected(frozenset(passed | own | now), _unstable(before, red, changed))


def removed(check: Check, before: Report, red: Report, changed: Collection[str]) -> set[str]:
    """Tests that passed before and are not run with the story's tests, unless what cannot be loaded yet is the cause.

    Args:
        check: What runs them.
        before: Of a run before the story.
        red: Of a run with the story's tests, before it was built.
        changed: Files that the test writer wrote, changed or removed.
    """
    # The exit code of a command that starts the runner is a result, too, named as the check.
    broken = {each.file for each in red.red() if each.file in (None, each.id) and each.id != check.name}
    if None in broken or (broken and check.runner in _COMPILED_TOGETHER):
        return set()
    missing = Expected(frozenset(each.id for each in before.results.values() if each.outcome == "passed"))
    unstable = _unstable(before, red, changed)
    return {
        name
        for name in missing.missing(red, before)
        if name in before.results
        and function_of(name) not in unstable
        and not _is_hidden_by(check, before.results[name].file, broken)
    }


def _is_hidden_by(check: Check, file: str | None, broken: Collection[str | None]) -> bool:
    """Whether a test is not run since its file, or another of its package, cannot be loaded."""
    if check.runner == "go":
        return (file or "").rpartition("/")[0] in {(each or "").rpartition("/")[0] for each in broken}
    return file in broken


def _unstable(before: Report, red: Report, changed: Collection[str]) -> frozenset[str]:
    """Functions that both runs have, with other ids, though the test writer changed nothing that they could depend on.

    Only new files of tests are no such thing. Any other file may hold the parameters of tests.
    """
    old = {each.file for each in before.results.values()}
    new = {each.file for each in red.results.values()} - old
    if any(path not in new and path.rpartition("/")[2] != "__init__.py" for path in changed):
        return frozenset()
    first, second = _ids_by_function(before), _ids_by_function(red)
    return frozenset(name for name in first.keys() & second.keys() if first[name] != second[name])


def _ids_by_function(report: Report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in report.results.values():
        found.setdefault(function_of(each.id), set()).add(each.id)
    return found


def function_of(name: str) -> str:
    """The id of the function that a test is one case of: without parameters or the names of subtests."""
    if match := _GO_FUNCTION.fullmatch(name):
        return match[1]
    return name.partition("[")[0]


def _parts(report: Report, name: str) -> list[TestResult]:
    """Tests of a file, or of a package of Go's."""
    return [each for each in report.results.values() if each.file == name or each.id.startswith(f"{name}.")]


def is_new_test(result: TestResult, baseline: Report) -> bool:
    """Whether it is one test, of a known file, that was not run before: also where data brought it about."""
    return result.file not in (None, result.id) and result.id not in baseline.results


def new_failures(report: Report, baseline: Report | None) -> list[TestResult]:
    """What is red and was not red before, by id; a runner whose functions were replaced is one such result."""
    was_red = {each.id for each in baseline.red()} if baseline is not None else set[str]()
    altered = sorted(set(report.altered) - set(baseline.altered if baseline is not None else ()))
    found = [each for each in report.red() if each.id not in was_red]
    if altered:
        shown = [name[:_SHOWN_CHARS] for name in altered[:_MAX_SHOWN]]
        shown += [f"and {len(altered) - _MAX_SHOWN} more"] if len(altered) > _MAX_SHOWN else []
        detail = f"the test runner, or what it reads, was changed while it ran: {', '.join(shown)}"
        found.insert(0, TestResult("the test runner", "error", None, detail))
    return found
