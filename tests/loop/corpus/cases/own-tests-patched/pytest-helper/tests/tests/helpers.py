from calc import sums


def check(a, b, total):
    assert sums.add(a, b) == total
