import unittest

from calc.sums import double


class Doubling(unittest.TestCase):
    def test_double(self):
        self.assertEqual(double(2), 4)
