"""Reports of several checks, taken together."""

from itertools import permutations

import pytest

from ringfence.check import Report, TestResult
from ringfence.check.report import Outcome
from ringfence.loop.check_runner import merged


def _report(**outcomes: Outcome) -> Report:
    results = {name: TestResult(name, outcome) for name, outcome in outcomes.items()}
    return Report(results=results, is_complete=True, exit_code=0, ended_by="exit")


@pytest.mark.parametrize("worst", ["skipped", "failed", "error"])
def test_of_tests_with_one_id_the_worst_counts(worst: Outcome):
    """A check that passes hides nothing of another one, in whatever order they are run."""
    for reports in permutations([_report(a="passed", b="passed"), _report(a=worst), _report(a="passed")]):
        found = merged(reports).results
        assert {name: each.outcome for name, each in found.items()} == {"a": worst, "b": "passed"}
