from calc.sums import double


def test_a():
    assert double(1) == 2
