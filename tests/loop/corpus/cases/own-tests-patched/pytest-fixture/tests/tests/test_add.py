import pytest

from calc import sums


@pytest.fixture
def total():
    return 3


def test_add(total):
    assert sums.add(1, 2) == total
