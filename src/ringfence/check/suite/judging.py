"""What a report means: whether new tests are red for the right reason, what is newly red, what is run no more."""

from collections.abc import Collection

from ringfence.check.suite.collection import is_test_file, why_not_collected
from ringfence.check.suite.expected import function_of
from ringfence.check.suite.model import RED, Check, Report, TestResult
from ringfence.check.suite.reason import Project, broken_because

_MOST = 20


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
    if len(complaints) > _MOST:
        complaints[_MOST:] = [f"and {len(complaints) - _MOST} more"]
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
    return found


def is_new_test(result: TestResult, baseline: Report) -> bool:
    """Whether it is one test, of a known file, that was not run before: also where data brought it about."""
    return result.file not in (None, result.id) and result.id not in baseline.results


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


def new_failures(report: Report, baseline: Report | None) -> list[TestResult]:
    """What is red and was not red before, by id; a runner whose functions were replaced is one such result."""
    was_red = {each.id for each in baseline.red()} if baseline is not None else set[str]()
    altered = sorted(set(report.altered) - set(baseline.altered if baseline is not None else ()))
    found = [each for each in report.red() if each.id not in was_red]
    if altered:
        detail = f"the test runner, or what it reads, was changed while it ran: {', '.join(altered)}"
        found.insert(0, TestResult("the test runner", "error", None, detail))
    return found
