"""Removing a loop from a database that it shares."""

from contextlib import closing

from ringfence.engine.opening import open_engine
from ringfence.loop.databases import unnote
from ringfence.loop.place import LoopPlace
from ringfence.loop.store.loops import LoopStore, open_database


async def forget(place: LoopPlace) -> None:
    """Remove its workflows and rows; what it has for itself goes with its directory. It can be repeated.

    Args:
        place: The loop's, which is held.

    Raises:
        InfrastructureFault: The database cannot be used; nothing else was removed then.
        ConfigurationError, UsageError, RecordError: As `LoopPlace.database_url`.
    """
    if place.shared is None:
        return
    async with open_engine(place.engine_url, queue=place.queue) as engine:
        await engine.discard()
    with closing(open_database(place.database_url)) as database:
        await LoopStore(database, place.id).remove()
    unnote(place.directory)
