import pytest

from calc import sums


def test_add():
    with pytest.raises(TypeError):
        sums.add('a', 1)


def test_more():
    with pytest.raises(TypeError):
        sums.add('b', 1)
