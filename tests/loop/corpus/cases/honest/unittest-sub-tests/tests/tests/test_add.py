import unittest

from calc import sums


class Shared:
    def test_shared(self):
        self.assertEqual(sums.add(self.one, 2), 3)


class Adding(Shared, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.one = 1

    def test_pairs(self):
        for a, b, total in ((1, 2, 3), (2, 2, 4)):
            with self.subTest(a=a):
                self.assertEqual(sums.add(a, b), total)
