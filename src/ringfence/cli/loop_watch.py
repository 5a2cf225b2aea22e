"""What `ringfence loop watch` does, once its words are read."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from ringfence.cli.saying import say

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from ringfence.cli.loop_live import LoopView
    from ringfence.loop.place import LoopPlace
    from ringfence.loop.store.loops import LoopStore
    from ringfence.loop.store.rows import LoopRow

_LOOK_S = 0.3
_LOST = 5
"""So often in a row nobody is found at work on a loop before it counts as interrupted: one may just be starting."""


def watch_loop(said: str | None, *, json: bool) -> int:
    """Follow a loop that another process works on to its end; the exit code of that."""
    from ringfence.cli.standing import run_to_the_end

    return run_to_the_end(lambda: _watch(said, json=json))


async def _watch(said: str | None, *, json: bool) -> int:
    from ringfence.cli.loop_live import LoopView
    from ringfence.loop.choosing import choose_loop
    from ringfence.loop.state import EXIT_CODES
    from ringfence.loop.store.loops import LoopStore, open_database

    place = await choose_loop(said, Path.cwd(), is_changed=False)
    view = LoopView(place, json=json)
    database = open_database(place.database_url)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.follow)
            row = await _ended(place, LoopStore(database, place.id), view, tasks)
            tasks.cancel_scope.cancel()
    finally:
        database.close()
    await view.finish()
    if not row.state.is_end:
        say(
            f"nobody works on loop {place.id}: it was interrupted; `ringfence loop resume {place.id[-6:]}` goes on"
        )
    return EXIT_CODES[row.state]


async def _ended(place: "LoopPlace", store: "LoopStore", view: "LoopView", tasks: "TaskGroup") -> "LoopRow":
    """Wait until nothing more is done about the loop, or nobody works on it; its runs are shown meanwhile."""
    from ringfence.journal import run_dir

    lost, shown = 0, set[str]()
    while place.is_worked_on if (row := await store.get()).state.is_end else lost < _LOST:
        lost = 0 if place.is_worked_on else lost + 1
        for step in view.at_work:
            if step.run_id is not None and step.run_id not in shown and run_dir(step.run_id).is_dir():
                shown.add(step.run_id)
                tasks.start_soon(_show, view, step.run_id, run_dir(step.run_id))
        await anyio.sleep(_LOOK_S)
    return row


async def _show(view: "LoopView", run_id: str, directory: Path) -> None:
    """Show what the record of a run tells, as it comes."""
    from ringfence.errors import RecordError
    from ringfence.journal import follow

    with suppress(RecordError):  # it is looked at, not believed: `audit verify` says what is wrong with it
        async for record in follow(directory):
            await view.show(run_id, record.event)
