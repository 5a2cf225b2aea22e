"""The corpus of attempts: what the gate of a loop makes of honest work, and of work that would deceive it."""

import os
from pathlib import Path

import pytest
from tests.loop.corpus.harness import Case, cases, missing, run_case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_REST = "another attempt of its kind, or in its language, is in make test"


def _parameters() -> list[object]:
    return [pytest.param(each, id=each.name, marks=_marks(each)) for each in cases().values()]


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    marks = [] if case.is_sample else [pytest.mark.full(_REST)]
    return [*marks, pytest.mark.xfail(reason=case.gap, strict=True)] if case.gap else marks


@pytest.mark.parametrize("case", _parameters())
def test_an_attempt_gets_the_verdict_that_is_written_with_it(case: Case, tmp_path: Path) -> None:
    """Honest work passes, deceit is rejected, and what only people and judges can see is known to pass the gate."""
    if why := missing(case):
        assert not os.environ.get("CI"), why
        pytest.skip(why)
    got = run_case(case, tmp_path)
    assert got.is_as_expected(case), (case.expected, case.blames, got)


def test_the_sample_has_each_kind_and_each_language() -> None:
    """What `make test` tries of the corpus leaves no kind of attempt and no language out."""
    sample = [each for each in cases().values() if each.is_sample]
    assert {each.kind for each in sample} == {each.kind for each in cases().values()}
    assert {each.base.language for each in sample} == {each.base.language for each in cases().values()}
