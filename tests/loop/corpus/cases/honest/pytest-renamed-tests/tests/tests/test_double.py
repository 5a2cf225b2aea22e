from calc.sums import double


def test_doubles_a_number():
    assert double(2) == 4
