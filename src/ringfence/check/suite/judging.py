"""What a report means: whether new tests are red for the right reason, what is newly red, what is run no more."""

from collections.abc import Collection

from ringfence.check.suite.model import Report, TestResult
from ringfence.check.suite.reason import Project, broken_because

_MOST = 20


def red_for_the_right_reason(
    report: Report,
    new_test_files: Collection[str],
    baseline: Report | None = None,
    *,
    project: Project | None = None,
) -> list[str]:
    """Why new tests, run on the base, are not the red that a story begins with; empty: they are.

    Each new file must have been collected and hold a new test; each new test must fail because what is to be built
    is absent or does otherwise, and none because the test itself is broken.

    Args:
        report: Of a run on the base with the new tests.
        new_test_files: Their paths, relative to the workspace.
        baseline: Of a run on the base without them; its tests are none of the new ones. None: there was none.
        project: What counts as the project's own; None: only what is imported by a relative path.
    """
    complaints = (
        [] if report.is_complete else [f"the run of the new tests is no proof: {why}" for why in _why(report)]
    )
    own = project or Project()
    old = baseline.results if baseline is not None else {}
    for file in sorted(new_test_files):
        complaints += _of_file(report, file, old, own)
    if not new_test_files:
        complaints.append("no file with tests was written")
    if len(complaints) > _MOST:
        complaints[_MOST:] = [f"and {len(complaints) - _MOST} more"]
    return complaints


def _why(report: Report) -> tuple[str, ...]:
    return report.problems or (f"it was ended by {report.ended_by}",)


def _of_file(report: Report, file: str, old: Collection[str], project: Project) -> list[str]:
    here = [each for each in report.results.values() if each.file == file]
    new = sorted((each for each in here if each.id not in old), key=lambda each: each.id)
    if not here:
        return [
            f"{file}: none of its tests was collected; is it where the runner looks, with names that it takes?"
        ]
    if not new:
        return [f"{file}: holds no new test"]
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


def missing(report: Report, expected: Collection[str], baseline: Report | None = None) -> list[str]:
    """Which of these tests were not run, or are skipped now, by id.

    What stood for a whole file or package that could not be loaded is there if tests of it were run, none skipped.

    Args:
        report: Of a run of the whole suite.
        expected: Ids that were run before: of the baseline those that passed, and frozen ones.
        baseline: What was skipped there may be skipped now.
    """
    gone = set[str]()
    for name in expected:
        found = report.results.get(name)
        parts = [found] if found is not None else _parts(report, name)
        if not parts:
            gone.add(name)
        gone |= {each.id for each in parts if each.outcome == "skipped"}
    if baseline is not None:
        gone -= {each.id for each in baseline.results.values() if each.outcome == "skipped"}
    return sorted(gone)


def _parts(report: Report, name: str) -> list[TestResult]:
    """Tests of a file, or of a package of Go's."""
    return [each for each in report.results.values() if each.file == name or each.id.startswith(f"{name}.")]
