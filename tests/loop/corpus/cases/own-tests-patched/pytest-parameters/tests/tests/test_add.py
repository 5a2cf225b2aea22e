import pytest

from calc import sums


@pytest.mark.parametrize(('a', 'b', 'total'), [(1, 2, 3)], ids=['three'])
def test_add(a, b, total):
    assert sums.add(a, b) == total
