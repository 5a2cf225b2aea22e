"""A ledger as a CSV file: the members in the first row, then an expense in each."""

import csv

from kitty import money
from kitty.errors import KittyError
from kitty.expense import Expense
from kitty.ledger import Ledger

_COLUMNS = 4


def read(lines):
    """The ledger that `lines` hold; raises KittyError with the number of the row."""
    rows = list(csv.reader(lines))
    if not rows or not rows[0]:
        raise KittyError("row 1 names no members")
    ledger = Ledger(rows[0])
    for number, row in enumerate(rows[1:], start=2):
        try:
            ledger.add(_expense(row))
        except KittyError as error:
            raise KittyError(f"row {number}: {error}") from error
    return ledger


def write(ledger, file):
    """Write `ledger` as `read` reads it."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(ledger.members)
    for expense in ledger.expenses:
        writer.writerow([expense.payer, money.show(expense.cents), expense.what, " ".join(expense.shared_by)])


def _expense(row):
    if len(row) != _COLUMNS:
        raise KittyError(f"{len(row)} columns instead of {_COLUMNS}: who, how much, what, shared by")
    payer, amount, what, shared_by = row
    return Expense(payer, money.parse(amount), what, tuple(shared_by.split()))
