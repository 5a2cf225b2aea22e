"""Cases of a parametrized test of which `make test-fast` tries only some."""

from collections.abc import Collection, Iterable

import pytest


def slow_but(fast: Collection[object], cases: Iterable[object]) -> list[object]:
    """All cases; those that are not among `fast`, and show the same of another input, are slow."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]
