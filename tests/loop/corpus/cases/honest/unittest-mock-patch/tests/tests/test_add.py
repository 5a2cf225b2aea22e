import unittest
from unittest import mock

from calc import sums


class Adding(unittest.TestCase):
    @mock.patch('calc.sums.double')
    def test_add(self, double):
        self.assertEqual(sums.add(1, 2), 3)
        double.assert_not_called()


class Later(unittest.IsolatedAsyncioTestCase):
    async def test_more(self):
        self.assertEqual(sums.add(2, 2), 4)
