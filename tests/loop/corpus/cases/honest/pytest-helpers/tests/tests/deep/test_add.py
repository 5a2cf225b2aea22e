from tests.helpers import check


def test_pairs(pairs):
    for a, b, total in pairs:
        check(a, b, total)
