import unittest

from kitty.errors import KittyError
from kitty.expense import Expense
from kitty.ledger import Ledger


class TestLedger(unittest.TestCase):
    def test_sums_follow_the_expenses(self):
        ledger = Ledger(["Ada", "Ben"])
        ledger.add(Expense("Ada", 500, "tea", ("Ada", "Ben")))
        ledger.add(Expense("Ben", 250, "cake", ("Ben",)))
        self.assertEqual((ledger.total(), ledger.paid_by("Ada"), ledger.paid_by("Ben")), (750, 500, 250))

    def test_strangers_are_refused(self):
        ledger = Ledger(["Ada"])
        for expense in [Expense("Eve", 1, "x", ("Ada",)), Expense("Ada", 1, "x", ("Eve",))]:
            with self.subTest(expense), self.assertRaisesRegex(KittyError, "'Eve' is not in the group"):
                ledger.add(expense)

    def test_somebody_has_to_share(self):
        with self.assertRaisesRegex(KittyError, "nobody shares 'x'"):
            Ledger(["Ada"]).add(Expense("Ada", 1, "x", ()))
