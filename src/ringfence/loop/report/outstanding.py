"""What was asked for at the start and comes after the last story: known by the events of the loop."""

from collections.abc import Iterable

from ringfence.loop.place import LoopPlace
from ringfence.loop.rows import EventRow, LoopRow
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState

OVER = (LoopState.SUCCEEDED, LoopState.INCOMPLETE, LoopState.BLOCKED)
"""Ends at which what passed is delivered as it was asked for."""
MERGED, PROPOSED = "loop.merged", "loop.proposed"


def outstanding(
    place: LoopPlace, row: LoopRow, settings: LoopSettings, events: Iterable[EventRow]
) -> tuple[str, ...]:
    """The options whose work is not done yet, once the loop is over: a story passed since, and the clones are there."""
    if row.state not in OVER or not place.clones.is_dir():
        return ()
    last = {event.type: event.number for event in events}
    passed = last.get("story.passed")
    if passed is None:
        return ()
    asked = (("--merge", settings.merge, MERGED), ("--pr", settings.pr, PROPOSED))
    return tuple(option for option, is_asked, kind in asked if is_asked and last.get(kind, 0) < passed)
