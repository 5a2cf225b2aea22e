"""What was asked for at the start and comes after the last story: known by what was told of it."""

from collections.abc import Iterable

from ringfence.loop.place import LoopPlace
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState
from ringfence.loop.store.rows import EventRow, LoopRow

MERGED, PROPOSED = "loop.merged", "loop.proposed"


def outstanding(
    place: LoopPlace, row: LoopRow, settings: LoopSettings, events: Iterable[EventRow]
) -> tuple[str, ...]:
    """The options that asked for what is not done yet: where every story has passed, and the clones are there."""
    if row.state is not LoopState.SUCCEEDED or not place.clones.is_dir():
        return ()
    told = {event.type for event in events}
    asked = (("--merge", settings.merge, MERGED), ("--pr", settings.pr, PROPOSED))
    return tuple(option for option, is_asked, kind in asked if is_asked and kind not in told)
