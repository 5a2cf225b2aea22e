"""One thing that somebody paid for the group."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Expense:
    """Who paid how much for what, and who shares it."""

    payer: str
    cents: int
    what: str
    shared_by: tuple[str, ...]
