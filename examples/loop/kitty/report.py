"""What a ledger looks like to people."""

from kitty import money


def overview(ledger):
    """A line for each member with what they paid, and the total."""
    rows = [(name, ledger.paid_by(name)) for name in ledger.members]
    rows.append(("total", ledger.total()))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}} {money.show(cents):>9}" for name, cents in rows)
