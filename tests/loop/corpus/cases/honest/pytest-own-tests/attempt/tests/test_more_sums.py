from calc.sums import add


def test_zero():
    assert add(0, 0) == 0
