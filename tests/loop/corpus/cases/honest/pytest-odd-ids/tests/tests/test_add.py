import pytest

from calc import sums


@pytest.mark.parametrize('b', [2, 3], ids=['a b::c/d', 'größer [1] \'quoted\''])
def test_add(b):
    assert sums.add(1, b) == b + 1
