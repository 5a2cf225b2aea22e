import unittest

from calc import sums


class Adding(unittest.TestCase):
    def test_add(self):
        self.assertEqual(sums.add(1, 2), 3)
