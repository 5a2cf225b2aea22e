"""The members of a group and what they spent."""

from kitty.errors import KittyError


class Ledger:
    """Members in the order they joined, expenses in the order they were made."""

    def __init__(self, members):
        self.members = tuple(members)
        self.expenses = []

    def add(self, expense):
        """Take an expense in; raises KittyError if somebody in it is no member, or nobody shares it."""
        if not expense.shared_by:
            raise KittyError(f"nobody shares {expense.what!r}; name who does")
        for name in (expense.payer, *expense.shared_by):
            if name not in self.members:
                raise KittyError(f"{name!r} is not in the group of {', '.join(self.members)}")
        self.expenses.append(expense)

    def total(self):
        """The cents spent so far."""
        return sum(expense.cents for expense in self.expenses)

    def paid_by(self, name):
        """The cents that one member paid."""
        return sum(expense.cents for expense in self.expenses if expense.payer == name)
