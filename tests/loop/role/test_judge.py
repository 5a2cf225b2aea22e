"""A judge's verdict is looked up before it counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.loop.role import Verdict, check_evidence, is_passed
from ringfence.loop.role.judge import CodeLine, CriterionVerdict, PassedTest, complaints_of

LINES = {"src/cart.py": 10, "empty.py": 0}


TESTS = {"tests/test_a.py::test_one": "passed", "tests/test_a.py::test_two": "failed"}
PLACE = CodeLine(file="src/cart.py", line=10)
TEST = PassedTest(test="tests/test_a.py::test_one")


def of(number: int, *evidence: CodeLine | PassedTest, says: str = "met") -> CriterionVerdict:
    """What is said of a criterion."""
    return CriterionVerdict.model_validate(
        {
            "criterion": number,
            "verdict": says,
            "evidence": [e.model_dump() for e in evidence],
            "reason": "seen",
        }
    )


def whole(*criteria: CriterionVerdict, overall: str = "pass", feedback: str = "") -> Verdict:
    """A verdict."""
    return Verdict.model_validate(
        {"criteria": [each.model_dump() for each in criteria], "overall": overall, "feedback": feedback}
    )


def problems(verdict: Verdict, criteria: int = 2) -> list[str]:
    """What is found in it."""
    return check_evidence(verdict, LINES.get, TESTS, criteria=criteria)


def test_evidence_that_exists_counts():
    """A line that is there and a test that passed show what they are said to show."""
    verdict = whole(of(1, PLACE), of(2, TEST, CodeLine(file="./src/cart.py", line=1)))
    assert problems(verdict) == []
    assert is_passed(verdict)


WRONG = [
    (whole(of(1, PLACE)), "criterion 2 is not judged"),
    (whole(of(1, PLACE), of(2, TEST), of(2, TEST)), "criterion 2 is judged 2 times"),
    (whole(of(1, PLACE), of(2, TEST), of(3, TEST)), "criterion 3 is judged, and the story has 2"),
    (whole(of(0, PLACE), of(1, TEST), of(2, TEST)), "criterion 0 is judged"),
    (whole(), "criterion 1 is not judged"),
    (whole(of(1, PLACE), of(2)), "criterion 2 is met, and nothing shows it"),
    (whole(of(1, PLACE), of(2, CodeLine(file="src/car.py", line=1))), "there is no file 'src/car.py'"),
    (whole(of(1, PLACE), of(2, CodeLine(file="src/cart.py", line=11))), "no line 11"),
    (whole(of(1, PLACE), of(2, CodeLine(file="src/cart.py", line=0))), "no line 0"),
    (whole(of(1, PLACE), of(2, CodeLine(file="empty.py", line=1))), "no line 1"),
    (whole(of(1, PLACE), of(2, CodeLine(file="/etc/passwd", line=1))), "is no path of the project"),
    (whole(of(1, PLACE), of(2, CodeLine(file="src/../../x", line=1))), "is no path of the project"),
    (whole(of(1, PLACE), of(2, PassedTest(test="test_one"))), "there is no test 'test_one'"),
    (whole(of(1, PLACE), of(2, PassedTest(test="tests/test_a.py::test_two"))), "did not pass: failed"),
    (whole(of(1, PLACE), of(2, TEST, PassedTest(test="x"))), "there is no test 'x'"),
    (whole(of(1, PLACE), of(2, TEST, says="unclear")), "not every criterion is met"),
    (whole(of(1, PLACE), of(2, says="not_met"), overall="reject"), "nothing is said to the next attempt"),
]


@pytest.mark.parametrize(("verdict", "said"), WRONG, ids=[each[1] for each in WRONG])
def test_a_verdict_that_does_not_hold_is_the_judges_fault(verdict, said):
    """Criteria missing, doubled or made up, evidence that is not there, and contradictions are each told."""
    assert any(said in problem for problem in problems(verdict))


def test_a_rejection_needs_reasons_not_evidence():
    """What is absent has no line; a rejection that says what is wrong counts."""
    verdict = whole(of(1, PLACE), of(2, says="not_met"), overall="reject", feedback="nothing is saved")
    assert problems(verdict) == []
    assert not is_passed(verdict)


VERDICTS = st.builds(
    lambda criteria, overall: whole(*criteria, overall=overall, feedback="f"),
    st.lists(
        st.builds(
            lambda number, evidence, says: of(number, *evidence, says=says),
            st.integers(0, 4),
            st.lists(
                st.sampled_from([PLACE, TEST, CodeLine(file="x", line=1), PassedTest(test="x")]),
                max_size=3,
            ),
            st.sampled_from(["met", "not_met", "unclear"]),
        ),
        max_size=4,
    ),
    st.sampled_from(["pass", "reject"]),
)


@given(VERDICTS, st.integers(1, 3))
def test_it_fails_closed(verdict, criteria):
    """Nothing passes but a verdict that has each criterion of the story once, met, by evidence that is there."""
    if is_passed(verdict) and not problems(verdict, criteria):
        assert sorted(each.criterion for each in verdict.criteria) == list(range(1, criteria + 1))
        assert all(each.verdict == "met" and each.evidence for each in verdict.criteria)
        assert all(evidence in (PLACE, TEST) for each in verdict.criteria for evidence in each.evidence)


def test_feedback_is_no_complaint_of_its_own():
    """It ends the last complaint; it is one only where every criterion is met and the judge rejects all the same."""
    (told,) = complaints_of(whole(of(1, PLACE), of(2, says="not_met"), overall="reject", feedback="mend it"))
    assert told == "criterion 2 is not met: seen\n\nThe judge's feedback: mend it"
    assert complaints_of(whole(of(1, PLACE), overall="reject", feedback="mend it")) == ["mend it"]
