from calc.sums import double


def test_double():
    assert repr(double(2)) == '4.0'
