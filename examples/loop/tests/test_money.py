import unittest

from kitty import money
from kitty.errors import KittyError


class TestMoney(unittest.TestCase):
    def test_amounts_are_read_as_cents(self):
        for text, cents in [("12", 1200), ("12.5", 1250), ("0.07", 7), (" 3.00 ", 300)]:
            with self.subTest(text):
                self.assertEqual(money.parse(text), cents)

    def test_what_is_no_amount_is_refused(self):
        for text in ["", "twelve", "1.234", "-5", "1 2"]:
            with self.subTest(text), self.assertRaises(KittyError):
                money.parse(text)

    def test_amounts_are_shown_with_two_decimals(self):
        self.assertEqual([money.show(cents) for cents in (1250, 7, 0, -310)], ["12.50", "0.07", "0.00", "-3.10"])

    def test_a_split_loses_no_cent(self):
        self.assertEqual(money.split(1000, 3), [334, 333, 333])
