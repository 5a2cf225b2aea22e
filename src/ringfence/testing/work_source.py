"""Conformance checks of work sources: promises that every work source must keep.

Each check is an async function whose docstring states one promise. It receives a place in which work lies, and raises
`AssertionError` if the promise is broken. With pytest:

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
    """The place in which a source's work lies, as its owner sees it."""

    async def put(self, title: str, body: str) -> str:
        """Add a work item; return its id. Later items are younger."""

    async def words(self, item: WorkItem) -> list[str]:
        """Return all comments and results of an item, wherever it is now."""

    def open(self) -> WorkSource:
        """Open a source on this place; each is a claimer of its own. The place closes it."""


Check = Callable[[Place], Awaitable[None]]
"""One promise, which the check's docstring states."""


def _token(number: int) -> str:
    return f"claim{number:08}"


async def _claimed(source: WorkSource, id: str, number: int = 1) -> Claim:
    claim = await source.claim(id, _token(number))
    assert claim is not None
    return claim


async def _ids(source: WorkSource) -> list[str]:
    return [item.id for item in (await source.fetch(100)).items]


async def oldest_first(place: Place) -> None:
    """Available items are fetched with their text, the oldest first."""
    ids = [await place.put(f"task {number}", f"do {number}") for number in range(3)]
    found = await place.open().fetch(100)
    assert [item.id for item in found.items] == ids
    assert [item.body for item in found.items] == ["do 0", "do 1", "do 2"]


async def a_limit(place: Place) -> None:
    """No more items are fetched than requested."""
    ids = [await place.put(f"task {number}", "do") for number in range(3)]
    found = await place.open().fetch(2)
    assert [item.id for item in found.items] == ids[:2]


async def one_claim(place: Place) -> None:
    """Of many concurrent claims of an item one wins, and no later claim does."""
    id = await place.put("task", "do")
    claims = await asyncio.gather(*(place.open().claim(id, _token(number)) for number in range(8)))
    won = [claim for claim in claims if claim]
    assert len(won) == 1
    assert won[0].item.body == "do"
    assert await _ids(place.open()) == []
    assert await place.open().claim(id, _token(99)) is None


async def the_same_claim(place: Place) -> None:
    """A claim that is repeated with the same token, since its response was lost, is the same claim."""
    id = await place.put("task", "do")
    first = await _claimed(place.open(), id)
    again = await _claimed(place.open(), id)
    assert (again.token, again.handle, again.item.body) == (first.token, first.handle, first.item.body)


async def what_is_gone(place: Place) -> None:
    """Claiming an item that is gone returns nothing, and is no error."""
    id = await place.put("task", "do")
    claim = await _claimed(place.open(), id)
    await place.open().complete(claim, Outcome.DONE, "")
    assert await place.open().claim(id, _token(2)) is None


async def completed_work(place: Place) -> None:
    """Completed items cannot be fetched or claimed, whatever the outcome; completing twice adds the result once."""
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
    """The result of a completed item is cut at a limit."""
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
"""All checks."""
