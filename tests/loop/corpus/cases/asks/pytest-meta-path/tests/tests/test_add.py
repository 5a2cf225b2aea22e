from calc import sums
from tests.helpers import check


def test_add():
    check(sums.add(1, 2), 3)
