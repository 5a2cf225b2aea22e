from calc import sums


def make(a, b, total):
    def check():
        assert sums.add(a, b) == total

    return check


test_add = make(1, 2, 3)
test_more = make(2, 2, 4)
