"""Which loop a command is about."""

from pathlib import Path

import anyio.to_thread

from ringfence.errors import RingfenceError, UsageError
from ringfence.loop.directory import LoopDirectory, find_loop, loop_places
from ringfence.loop.repository import RepositoryRefused, find_source
from ringfence.loop.store import read_overview


async def choose_loop(said: str | None, here: Path, *, is_changed: bool) -> LoopDirectory:
    """The loop of an id or of its end; where none is said, the last one of the repository that one stands in.

    Args:
        said: What the user said.
        here: The directory that the user is in.
        is_changed: Whether something is done about the loop. Then one of another repository has to be named; where it
            is only looked at, the last one of all serves.

    Raises:
        UsageError: There is none, or none that can be meant.
    """
    if said not in (None, "last"):
        return find_loop(said)
    last = find_loop(None)
    root = await anyio.to_thread.run_sync(lambda: root_of(here.resolve()))
    for place in loop_places():
        if await _root(place) == root:
            return place
    if is_changed:
        raise UsageError(
            f"no loop was begun on {str(root)!r}; name another one's id, `ringfence loop ls` shows them"
        )
    return last


async def _root(place: LoopDirectory) -> Path | None:
    """The repository of a loop; None if its rows cannot be read."""
    try:
        source = read_overview(place)[0].source
    except RingfenceError:
        return None
    return await anyio.to_thread.run_sync(root_of, Path(source))


def root_of(directory: Path) -> Path:
    """The top of the repository that a directory lies in, if it does; two loops on it would not know of each other."""
    try:
        return find_source(directory).root
    except RepositoryRefused:
        return directory
