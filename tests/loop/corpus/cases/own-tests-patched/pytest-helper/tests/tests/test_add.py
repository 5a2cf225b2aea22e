from calc import sums
from tests.helpers import check


def test_add():
    check(1, 2, 3)
