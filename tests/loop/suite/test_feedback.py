"""What an agent is told of a check."""

import pytest

from ringfence.check.suite import Check, Report, TestResult, feedback, new_failures
from ringfence.check.suite.judging import missing

CHECK = Check("test", "pytest", "python3 -m pytest -q", 60.0, "pytest")


def report(
    *results: TestResult, problems: tuple[str, ...] = (), altered: tuple[str, ...] = (), output: str = ""
) -> Report:
    """A report of these."""
    return Report({each.id: each for each in results}, not problems, 1, "exit", output, problems, altered)


GOOD, BAD = TestResult("a", "passed"), TestResult("b", "failed", "t.py", "E   assert 1 == 2")


def test_nothing_to_say() -> None:
    """Of a check in which nothing is newly red there is nothing to say."""
    assert feedback(CHECK, report(GOOD)) == ""
    assert feedback(CHECK, report(GOOD, BAD), report(BAD)) == ""


def test_what_failed_is_said_first() -> None:
    """What is newly red is told with its text, what was red before is only counted, what is gone is listed."""
    text = feedback(
        CHECK,
        report(GOOD, BAD, TestResult("old", "error")),
        report(TestResult("old", "failed")),
        expected=("gone",),
    )
    assert text.startswith("pytest (python3 -m pytest -q): 1 new failures among 3 results, exit code 1.")
    assert "## b (failed)\nE   assert 1 == 2" in text
    assert "(1 more were red before and are not counted.)" in text
    assert "- gone" in text
    assert "## old" not in text


@pytest.mark.parametrize("count", [1, 7, 500])
@pytest.mark.parametrize("most", [500, 2000, 8000])
def test_it_is_bounded(count: int, most: int) -> None:
    """However much failed, the text keeps to its bound and says what is left out."""
    failures = [TestResult(f"test_{number}", "failed", None, "x" * 9000) for number in range(count)]
    text = feedback(CHECK, report(*failures, output="y" * 50_000), most_chars=most)
    assert len(text) <= most
    assert "cut" in text or "without their text" in text


def test_what_is_not_complete() -> None:
    """Of a check that did not come to its end its reasons are told, and the end of what it printed."""
    text = feedback(CHECK, report(problems=("pytest did not report",), output="No module named pytest"))
    assert "Not complete: pytest did not report" in text
    assert text.endswith("No module named pytest")


def test_a_runner_that_was_altered() -> None:
    """A runner whose functions were replaced is a new failure, unless it was so on the base."""
    altered = report(GOOD, altered=("unittest.case.TestCase.run",))
    assert [each.id for each in new_failures(altered, report(GOOD))] == ["the test runner"]
    assert new_failures(altered, altered) == []


def test_missing() -> None:
    """A test is missing if it was not run or is skipped, not if it failed."""
    assert missing(report(GOOD, BAD, TestResult("c", "skipped")), ["a", "b", "c", "d"]) == ["c", "d"]


def test_missing_of_a_file() -> None:
    """A file that could not be loaded is there when its tests are run, and each that is skipped instead is missing."""
    results = [TestResult("t.py::a", "passed", "t.py"), TestResult("t.py::b", "skipped", "t.py")]
    assert missing(report(*results), ["t.py", "u.py"]) == ["t.py::b", "u.py"]
    assert missing(report(*results), ["t.py"], report(results[1])) == []
    assert missing(report(TestResult("example.com/calc.TestA", "passed")), ["example.com/calc"]) == []
