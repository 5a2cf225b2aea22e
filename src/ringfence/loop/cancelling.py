"""Ending a loop that the user is done with."""

from collections.abc import Callable

from ringfence.errors import RingfenceError
from ringfence.loop.place import LoopPlace
from ringfence.loop.plans import plan_from_json
from ringfence.loop.report.writing import write_report
from ringfence.loop.repository import LoopRepository
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store.loops import LoopStore, open_database

Tell = Callable[[str], None]


async def cancel(place: LoopPlace, tell: Tell) -> str:
    """Have a loop stop. One that nobody works on is ended here: what passed is then on its branch, and in a report.

    Args:
        place: The loop's.
        tell: Is told why there is no report, if so.

    Returns:
        What came of it.

    Raises:
        InfrastructureFault: Its rows cannot be read or written.
    """
    database = open_database(place.database_url)
    try:
        store = LoopStore(database, place.id)
        if place.is_worked_on and await store.ask_to_cancel():
            return (
                f"loop {place.id} was asked to stop; `ringfence loop watch {place.id[-6:]}` shows when it has"
            )
        if not await store.cancel():
            return f"loop {place.id} has ended already: {(await store.get()).state.value}"
        key = f"cancelled.{(await store.get()).round}"
        await store.tell(key, "loop.cancelled", state=LoopState.CANCELLED.value, reason="cancelled")
        try:
            with place.held():
                await _bring_home(place, store, tell)
        except RingfenceError as exc:  # its clones are gone, or somebody goes on with it just now
            tell(f"no report of loop {place.id} was written: {exc}")
        return f"loop {place.id} is cancelled; `ringfence loop resume {place.id[-6:]}` goes on"
    finally:
        database.close()


async def _bring_home(place: LoopPlace, store: LoopStore, tell: Tell) -> None:
    """What its own process does at a loop's end: the branch has what passed, and the report says how it stands."""
    repository = LoopRepository.open(place.clones)
    stories = await store.stories()
    if any(story.state is StoryState.PASSED and story.merged for story in stories):
        await repository.deliver()
    for story in stories:
        if story.state is StoryState.RUNNING:
            await store.change(story.id, state=StoryState.WAITING, stage="")
    problem = await write_report(place, store, repository, plan_from_json((await store.get()).plan))
    if problem is not None:
        tell(problem)
