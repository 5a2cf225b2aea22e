"""Closing what a dead process left: its runs' records, its sandboxes' remains."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ringfence.errors import RecordError, RingfenceError
from ringfence.job.state import JobState
from ringfence.job.store import JobRow, JobStore
from ringfence.journal import is_alive, mark_interrupted, run_dir, summarize
from ringfence.sandbox.registry import backend_names, get_backend


async def sweep(store: JobStore) -> list[str]:
    """Close runs whose process died and remove what their sandboxes left; returns those that it marked interrupted."""
    dead = [row for row in store.unfinished() if not is_alive(run_dir(row.id))]
    return [row.id for row in dead if await _close(row, store) is JobState.INTERRUPTED]


async def close_the_dead(tell: Callable[[str], None]) -> JobStore:
    """Close runs whose process died, and tell of them; returns the store of jobs."""
    store = JobStore()
    for run_id in await sweep(store):
        tell(f"run {run_id} was interrupted; its record is closed")
    return store


async def _close(row: JobRow, store: JobStore) -> JobState | None:
    """The end that is noted of it; None if somebody else did that."""
    for name in backend_names():
        with suppress(RingfenceError):  # a backend that is not usable now has nothing that we could remove
            await get_backend(name).remove_leftovers(frozenset(row.sandbox_ids))
    path = run_dir(row.id)
    with suppress(RecordError):  # a damaged record stays as it is: `audit verify` says what is wrong with it
        mark_interrupted(path)
    end = _recorded_end(path)
    return end if store.move(row.id, row.state, end) else None


def _recorded_end(path: Path) -> JobState:
    """The end that the record tells of: the store is a copy, and a process may die between the two."""
    told = summarize(path).state if path.is_dir() else ""
    return next(
        (state for state in JobState if state.is_terminal and state.value == told), JobState.INTERRUPTED
    )
