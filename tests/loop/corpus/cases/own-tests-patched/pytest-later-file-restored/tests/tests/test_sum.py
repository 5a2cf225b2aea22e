from calc import sums


def test_add():
    assert sums.add(1, 2) == 3
