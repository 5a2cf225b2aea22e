"""What every work source promises: checks that any can be put to.

Each check is an async function whose docstring is one promise; it is given a place where work lies and raises
`AssertionError` where the promise is broken. By pytest:

    from ringfence.testing.work_source import CHECKS

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_conforms(check) -> None:
        await check(my_place)
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ringfence.fleet.trigger.source import Claim, Outcome, WorkItem, WorkSource


class Place(Protocol):
    """Where work lies, from outside of the source under test."""

    async def put(self, title: str, body: str) -> str:
        """Leave work; returns the item's id. Later ones are younger."""

    async def words(self, item: WorkItem) -> list[str]:
        """All comments and results that lie with an item, wherever it is now."""

    def open(self) -> WorkSource:
        """A source on this place; several are claimers of their own. The place closes them."""


Check = Callable[[Place], Awaitable[None]]
"""One promise."""


def _token(number: int) -> str:
    return f"claim{number:08}"


async def _claimed(source: WorkSource, id: str, number: int = 1) -> Claim:
    claim = await source.claim(id, _token(number))
    assert claim is not None
    return claim


async def _ids(source: WorkSource) -> list[str]:
    return [item.id for item in (await source.fetch(100)).items]


async def oldest_first(place: Place) -> None:
    """What is there is fetched, the oldest first, with its words."""
    ids = [await place.put(f"task {number}", f"do {number}") for number in range(3)]
    found = await place.open().fetch(100)
    assert [item.id for item in found.items] == ids
    assert [item.body for item in found.items] == ["do 0", "do 1", "do 2"]


async def a_limit(place: Place) -> None:
    """No more is fetched than was asked for."""
    ids = [await place.put(f"task {number}", "do") for number in range(3)]
    found = await place.open().fetch(2)
    assert [item.id for item in found.items] == ids[:2]


async def one_claim(place: Place) -> None:
    """Of many claimers at once none shares an item with another, and it is left to none when all have lost."""
    id = await place.put("task", "do")
    claims = await asyncio.gather(*(place.open().claim(id, _token(number)) for number in range(8)))
    won = [claim for claim in claims if claim]
    assert len(won) == 1
    assert won[0].item.body == "do"
    assert await _ids(place.open()) == []
    assert await place.open().claim(id, _token(99)) is None


async def the_same_claim(place: Place) -> None:
    """A claim that is asked for again, since its answer was lost, is the same claim."""
    id = await place.put("task", "do")
    first = await _claimed(place.open(), id)
    again = await _claimed(place.open(), id)
    assert (again.token, again.handle, again.item.body) == (first.token, first.handle, first.item.body)


async def what_is_gone(place: Place) -> None:
    """What is not there cannot be claimed, and that is no error."""
    id = await place.put("task", "do")
    claim = await _claimed(place.open(), id)
    await place.open().complete(claim, Outcome.DONE, "")
    assert await place.open().claim(id, _token(2)) is None


async def completed_work(place: Place) -> None:
    """Completed work is over, however it ended; what is said of it lies with it; completing twice says it once."""
    source = place.open()
    for outcome in Outcome:
        id = await place.put(f"task {outcome}", "do")
        claim = await _claimed(source, id)
        for _ in range(2):
            await source.complete(claim, outcome, f"it is {outcome}")
        assert await _ids(source) == []
        assert await source.claim(id, _token(2)) is None
        words = await place.words(claim.item)
        assert sum(f"it is {outcome}" in word for word in words) == 1


async def long_words(place: Place) -> None:
    """What is said of completed work is cut where it is too long."""
    source = place.open()
    claim = await _claimed(source, await place.put("task", "do"))
    await source.complete(claim, Outcome.DONE, "ä" * 100_000)
    words = await place.words(claim.item)
    [long] = [word for word in words if "ää" in word]
    assert len(long.encode()) < 61_000
    assert "bytes more" in long


CHECKS: Final[tuple[Check, ...]] = (
    oldest_first,
    a_limit,
    one_claim,
    the_same_claim,
    what_is_gone,
    completed_work,
    long_words,
)
"""All promises."""
