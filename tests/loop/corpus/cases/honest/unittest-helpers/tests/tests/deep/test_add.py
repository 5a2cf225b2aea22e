import unittest

from calc import sums
from tests.helpers import pairs


class Adding(unittest.TestCase):
    def test_pairs(self):
        for a, b, total in pairs():
            self.assertEqual(sums.add(a, b), total)
