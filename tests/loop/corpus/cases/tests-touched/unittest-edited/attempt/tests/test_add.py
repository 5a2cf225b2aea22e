import unittest

from calc import sums


class Adding(unittest.TestCase):
    def test_add(self):
        self.assertEqual(sums.add(1, 2), 0)

    def test_more(self):
        self.assertEqual(sums.add(2, 2), 0)
