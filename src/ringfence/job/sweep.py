"""Closing what a dead process left: its runs' records, its sandboxes' remains."""

from contextlib import suppress

from ringfence.errors import RecordError, RingfenceError
from ringfence.job.state import JobState
from ringfence.job.store import JobRow, JobStore
from ringfence.journal import is_alive, mark_interrupted, run_dir
from ringfence.sandbox.registry import backend_names, get_backend


async def sweep(store: JobStore) -> list[str]:
    """Mark runs whose process died as interrupted and remove what their sandboxes left; returns their names."""
    dead = [row for row in store.unfinished() if not is_alive(run_dir(row.id))]
    for row in dead:
        await _close(row, store)
    return [row.id for row in dead]


async def _close(row: JobRow, store: JobStore) -> None:
    for name in backend_names():
        with suppress(RingfenceError):  # a backend that is not usable now has nothing that we could remove
            await get_backend(name).clean_up(frozenset(row.sandbox_ids))
    with suppress(RecordError):  # a damaged record stays as it is: `audit verify` says what is wrong with it
        mark_interrupted(run_dir(row.id))
    store.move(row.id, row.state, JobState.INTERRUPTED)
