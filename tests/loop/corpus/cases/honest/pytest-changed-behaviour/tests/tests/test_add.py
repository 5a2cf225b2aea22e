from calc import sums


def test_add():
    assert sums.add(1, 2) == 3


def test_more():
    assert sums.add(2, 2) == 4
