import functools

import pytest

from calc import sums


def twice(function):
    @functools.wraps(function)
    def both(*args, **kwargs):
        function(*args, **kwargs)
        return function(*args, **kwargs)

    return both


@pytest.fixture
def three():
    return 3


@twice
def test_add(three):
    assert sums.add(1, 2) == three


@pytest.mark.parametrize(('a', 'b', 'total'), [(1, 2, 3), (2, 2, 4)])
def test_pairs(a, b, total):
    assert sums.add(a, b) == total


class TestMore:
    def test_more(self):
        assert sums.add(2, 2) == 4
