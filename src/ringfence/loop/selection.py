"""Finds the loop that a command is about."""

from pathlib import Path

import anyio.to_thread

from ringfence.errors import RingfenceError, UsageError
from ringfence.loop.directory import LoopDirectory, find_loop, loop_directories
from ringfence.loop.repository import RepositoryRefused, find_source
from ringfence.loop.store import read_overview


async def select_loop(loop: str | None, here: Path) -> LoopDirectory:
    """Return the loop with an id, or the newest loop of the repository that the user is in.

    Args:
        loop: The id or its end; None or `last`: the newest loop of the repository.
        here: The directory that the user is in.

    Raises:
        UsageError: No loop matches, or several do.
    """
    if loop not in (None, "last"):
        return find_loop(loop)
    find_loop(None)  # raises if there is no loop at all
    root = await anyio.to_thread.run_sync(lambda: root_of(here.resolve()))
    for directory in loop_directories():
        if await _root(directory) == root:
            return directory
    raise UsageError(
        f"no loop was started on {str(root)!r}; name the id of a loop of another repository, as `ringfence loop ls` "
        "lists them; commands that take a story have the option `--loop ID` for it"
    )


async def closed_loops(here: Path) -> list[LoopDirectory]:
    """Return the loops of a repository that succeeded, are incomplete or were cancelled, the newest first.

    Args:
        here: A directory in the repository.
    """
    root = await anyio.to_thread.run_sync(lambda: root_of(here.resolve()))
    own = [directory for directory in loop_directories() if await _root(directory) == root]
    return [directory for directory in own if read_overview(directory)[0].state.is_closed]


async def _root(directory: LoopDirectory) -> Path | None:
    """Return the repository of a loop; None if its database cannot be read."""
    try:
        source = read_overview(directory)[0].source
    except RingfenceError:
        return None
    return await anyio.to_thread.run_sync(root_of, Path(source))


def root_of(directory: Path) -> Path:
    """Return the top directory of the repository that contains a directory; the directory itself if none does."""
    try:
        return find_source(directory).root
    except RepositoryRefused:
        return directory
