"""What an agent is told of a check."""

import pytest

from ringfence.check import Check, Report, TestResult, feedback, new_failures, red_for_the_right_reason
from ringfence.check.baseline import Expected, expected_tests, removed

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
        expected=Expected(frozenset({"gone"})),
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
    text = feedback(CHECK, report(*failures, output="y" * 50_000), max_chars=most)
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


def test_a_long_list_of_what_was_altered_is_shortened() -> None:
    """The message names 20 of them, each in at most 200 characters, and says how many it leaves out."""
    (found,) = new_failures(
        report(GOOD, altered=tuple(f"{number:02}{'x' * 900}" for number in range(25))), None
    )
    assert "19x" in found.detail
    assert "20x" not in found.detail
    assert found.detail.endswith("and 5 more")
    assert len(found.detail) < 5000


def gone(of: Report, *expected: str, before: Report | None = None) -> list[str]:
    """Which of the expected tests were not run."""
    return Expected(frozenset(expected)).missing(of, before)


def test_missing() -> None:
    """A test is missing if it was not run or is skipped, not if it failed."""
    assert gone(report(GOOD, BAD, TestResult("c", "skipped")), "a", "b", "c", "d") == ["c", "d"]


def test_missing_of_a_file() -> None:
    """A file that could not be loaded is there when its tests are run, and each that is skipped instead is missing."""
    results = [TestResult("t.py::a", "passed", "t.py"), TestResult("t.py::b", "skipped", "t.py")]
    assert gone(report(*results), "t.py", "u.py") == ["t.py::b", "u.py"]
    assert gone(report(*results), "t.py", before=report(results[1])) == []
    assert gone(report(TestResult("example.com/calc.TestA", "passed")), "example.com/calc") == []


def passed(*names: str) -> Report:
    """A report in which tests of files passed."""
    return report(*(TestResult(name, "passed", name.split("::")[0]) for name in names))


def test_ids_that_differ_from_run_to_run_are_compared_by_function() -> None:
    """One case of the function must pass; of other functions each test is expected by its id."""
    before = passed("t.py::a", "t.py::each[1]", "t.py::each[2]")
    red = report(
        *passed("t.py::a", "t.py::each[3]").results.values(), TestResult("n.py::new", "failed", "n.py")
    )
    expected = expected_tests(CHECK, before, red, ["n.py"])
    assert expected.missing(passed("t.py::a", "t.py::each[9]", "n.py::new")) == []
    assert expected.missing(passed("t.py::each[9]", "n.py::new")) == ["t.py::a"]
    assert expected.missing(passed("t.py::a", "n.py::new")) == [
        "t.py::each[1]",
        "t.py::each[2]",
        "t.py::each[3]",
    ]


def test_what_the_test_writer_removed_is_known_and_not_expected() -> None:
    """An intended change of behaviour takes old tests with it; those that cannot be loaded yet are not removed."""
    before = passed("t.py::kept", "t.py::old", "u.py::one")
    red = report(TestResult("t.py::kept", "passed", "t.py"), TestResult("u.py", "error", "u.py"))
    assert removed(CHECK, before, red, ["t.py"]) == {"t.py::old"}
    expected = expected_tests(CHECK, before, red, ["t.py"])
    assert expected.missing(passed("t.py::kept")) == ["u.py::one"]


def test_in_a_package_that_cannot_be_compiled_nothing_is_removed() -> None:
    """Go runs no test of a package, and cargo none at all, where a file of tests cannot be compiled."""
    before = report(
        TestResult("shop.TestOld", "passed", "a_test.go"), TestResult("shop/x.TestX", "passed", "x/x_test.go")
    )
    red = report(TestResult("new_test.go", "error", "new_test.go"))
    assert removed(Check("test", "go", "go test ./...", runner="go"), before, red, ["new_test.go"]) == {
        "shop/x.TestX"
    }
    assert (
        removed(Check("test", "cargo", "cargo test", runner="cargo"), before, red, ["new_test.rs"]) == set()
    )


def test_cases_that_the_test_writer_drops_are_removed() -> None:
    """Ids that differ are no accident where a file that tests depend on was changed: they are shown to the judge."""
    before = passed("t.py::each[1]", "t.py::each[2]")
    red = report(*passed("t.py::each[1]").results.values(), TestResult("n.py::new", "failed", "n.py"))
    assert removed(CHECK, before, red, ["n.py", "t.py"]) == {"t.py::each[2]"}
    assert removed(CHECK, before, red, ["n.py", "cases.json"]) == {"t.py::each[2]"}
    assert removed(CHECK, before, red, ["n.py", "__init__.py"]) == set()


def test_what_is_removed_is_known_of_a_command_that_starts_the_runner() -> None:
    """Its exit code is a result as well, of no file."""
    check = Check("test", "tests", "make test")
    before = report(TestResult("tests", "passed"), *passed("t.py::a", "t.py::b").results.values())
    red = report(TestResult("tests", "failed"), *passed("t.py::a").results.values())
    assert removed(check, before, red, ["t.py"]) == {"t.py::b"}


def test_a_renamed_test_is_no_new_one() -> None:
    """A test that passes in place of one that is gone from its file proves nothing new, and need not be red."""
    before, new = passed("t.py::old"), TestResult("n.py::new", "failed", "n.py")
    renamed = report(*passed("t.py::renamed").results.values(), new)
    assert red_for_the_right_reason(renamed, ["t.py", "n.py"], before) == []
    more = report(*passed("t.py::renamed", "t.py::more").results.values(), new)
    assert red_for_the_right_reason(more, ["t.py", "n.py"], before) == [
        "t.py::renamed: passes before anything was built; it proves nothing"
    ]
    only = red_for_the_right_reason(passed("t.py::renamed"), ["t.py"], before, checks=[CHECK])
    assert only == ["t.py: holds no new test"]
