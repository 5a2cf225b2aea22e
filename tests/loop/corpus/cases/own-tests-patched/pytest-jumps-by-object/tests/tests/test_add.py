from calc import sums


def test_add():
    assert sums.add(1, 2) == 3
    assert sums.add(2, 2) == 4
    assert isinstance(sums.add(1, 1), int)
