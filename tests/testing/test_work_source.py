"""The checks of work sources find sources that break their promises."""

from datetime import UTC, datetime

import pytest

from ringfence.fleet.trigger.source import Claim, Fetched, Outcome, WorkItem, WorkSource
from ringfence.testing import work_source


class Broken(WorkSource):
    """Work in memory, with one fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.items: dict[str, WorkItem] = {}
        self.claims: dict[str, str] = {}
        self.said: list[str] = []

    async def put(self, title: str, body: str) -> str:
        item = WorkItem(str(len(self.items) + len(self.claims)), title, body, datetime.now(UTC))
        self.items[item.id] = item
        return item.id

    async def words(self, item: WorkItem) -> list[str]:
        return self.said

    def open(self) -> WorkSource:
        return self

    async def fetch(self, limit: int) -> Fetched:
        free = [item for id, item in self.items.items() if id not in self.claims]
        return Fetched(tuple(free[:limit]))

    async def claim(self, id: str, token: str) -> Claim | None:
        if self.fault != "two claims" and self.claims.setdefault(id, token) != token:
            return None
        self.claims[id] = token
        return Claim(self.items[id], token)

    async def complete(self, claim: Claim, outcome: Outcome, text: str) -> None:
        if self.fault == "repeats" or text not in self.said:
            self.said.append(text)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("two claims", work_source.one_claim),
        ("two claims", work_source.what_is_gone),
        ("repeats", work_source.long_words),
        ("repeats", work_source.completed_work),
    ],
)
async def test_a_broken_promise_is_found(fault, check):
    """A source that gives an item twice or repeats itself fails that promise's check, and no others."""
    with pytest.raises(AssertionError):
        await check(Broken(fault))
    await work_source.oldest_first(Broken(fault))
    await work_source.a_limit(Broken(fault))
