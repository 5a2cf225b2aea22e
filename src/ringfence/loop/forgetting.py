"""Removing a loop from a database that it shares."""

import os
from contextlib import closing
from pathlib import Path

from ringfence.engine.opening import open_engine
from ringfence.errors import UsageError
from ringfence.loop.databases import Shared, announced, announced_at, unnote
from ringfence.loop.place import LoopPlace, queue_of
from ringfence.loop.store.loops import LoopStore, open_database


async def forget(place: LoopPlace) -> None:
    """Remove its workflows and rows; what it has for itself goes with its directory. It can be repeated.

    Args:
        place: The loop's, which is held.

    Raises:
        InfrastructureFault: The database cannot be used; nothing else was removed then.
        ConfigurationError, UsageError, RecordError: As `LoopPlace.database_url`.
    """
    shared = place.shared
    if shared is not None:
        await _remove(place.id, shared)
        unnote(place.directory)


def lost_loops(state: Path) -> list[str]:
    """Loops begun here whose directory is gone, and whose rows may still be in the database that they shared.

    Args:
        state: The state directory: of loops that were begun with another one, nothing is known here.
    """
    # A link that leads nowhere now was put there by somebody who has the directory elsewhere.
    names = announced(state / "loops")
    return [name for name in names if not os.path.lexists(LoopPlace(name, state).directory)]


async def forget_lost(name: str, state: Path) -> None:
    """Remove the workflows and rows of one of `lost_loops`.

    Raises:
        UsageError: The rows are of another loop, or the variables of the address lead elsewhere now.
        ConfigurationError, RecordError, InfrastructureFault: The database is not known, or cannot be used.
    """
    directory = LoopPlace(name, state).directory
    shared = announced_at(directory)
    if shared is None:
        return
    with closing(open_database(shared.url(os.environ, loop=name))) as database:
        source = await LoopStore(database, name).source()
    if source not in (None, shared.source):
        raise UsageError(
            f"loop {name} in {shared.shown!r} is of {source!r}, and was not begun here: it stays"
        )
    await _remove(name, shared)
    unnote(directory)


async def _remove(name: str, shared: Shared) -> None:
    url = shared.url(os.environ, loop=name)
    async with open_engine(url, queue=queue_of(name)) as engine:
        await engine.discard()
    with closing(open_database(url)) as database:
        await LoopStore(database, name).remove()
