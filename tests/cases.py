"""Cases and examples of which `make test-fast` tries only some."""

from collections.abc import Collection, Iterable

import pytest
from _pytest.mark.structures import ParameterSet
from hypothesis import settings


def slow_but(fast: Collection[object], cases: Iterable[object]) -> list[object]:
    """All cases; those that are not among `fast`, and show the same of another input, are slow."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def slow_after(count: int, cases: Iterable[object]) -> list[object]:
    """All cases; those after the first `count`, which show the same of another input, are slow.

    A case that is a tuple has a value for each name; one value that is a tuple goes with `slow_but`.
    """
    return [case if number < count else _slow(case) for number, case in enumerate(cases)]


def _slow(case: object) -> object:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)


def examples(count: int) -> int:
    """How many a property is tried on: `count` in the whole suite, in the fast one no more than in others."""
    fast = settings.get_profile("fast").max_examples
    return min(count, fast) if settings().max_examples == fast else count
