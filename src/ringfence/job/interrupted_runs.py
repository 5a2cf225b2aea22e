"""Closes runs whose process died: closes their records, removes their sandboxes, and keeps their work."""

from contextlib import ExitStack, suppress
from pathlib import Path

from ringfence.config.paths import state_dir
from ringfence.errors import RecordError, RingfenceError, UsageError
from ringfence.job.request import Notify
from ringfence.job.state import JobState
from ringfence.job.store import JobRow, JobStore
from ringfence.journal import is_alive, mark_interrupted, run_dir, summarize
from ringfence.sandbox.registry import backend_names, get_backend
from ringfence.sandbox.workspace.lock import held
from ringfence.sandbox.workspace.record import (
    WorkRecord,
    load_record,
)
from ringfence.sandbox.workspace.run import close


async def recover(store: JobStore) -> list[str]:
    """Close the runs whose process died and remove leftovers of their sandboxes.

    Returns:
        The runs that this call marked as interrupted.
    """
    dead = [row for row in store.unfinished() if not is_alive(run_dir(row.id))]
    return [row.id for row in dead if await _close(row, store) is JobState.INTERRUPTED]


async def recover_runs(notify: Notify) -> JobStore:
    """Do as `recover` with the store of the state directory, name each run to `notify`, and return the store."""
    store = JobStore()
    for run_id in await recover(store):
        notify(f"run {run_id} was interrupted; its record is closed")
    return store


async def _close(row: JobRow, store: JobStore) -> JobState | None:
    """Close a dead run and return its end; None if another process was faster."""
    for name in backend_names():
        with suppress(RingfenceError):  # leftovers of a backend that is not usable now cannot be removed
            await get_backend(name).remove_leftovers(frozenset(row.sandbox_ids))
    path = run_dir(row.id)
    with suppress(RecordError):  # a damaged record stays as it is: verification reports the damage
        mark_interrupted(path)
    end = _recorded_end(path)
    return end if store.move(row.id, row.state, end) else None


def _recorded_end(path: Path) -> JobState:
    """The end in the record. The store is a copy, and a process may die between writing the two."""
    recorded = summarize(path).state if path.is_dir() else ""
    return next(
        (state for state in JobState if state.is_terminal and state.value == recorded), JobState.INTERRUPTED
    )


async def completed_work(path: Path) -> tuple[WorkRecord, bool]:
    """The work record of the run in `path`, and whether its final state was only captured by this call.

    A run whose process died captured no final state. If it worked on a clone, the clone still holds that state; if it
    worked on the workspace itself, the current files are taken as the state, even if others wrote them.

    Raises:
        UsageError: The run has not ended.
        RecordError: It left no work behind.
        PolicyRefused: Another run is working on the workspace.
        InfrastructureFault: Git failed or the disk is full.
    """
    record = load_record(path)
    if record.after is not None:
        return record, False
    if is_alive(path):
        raise UsageError(f"run {path.name!r} is still running; wait until it has ended")
    with ExitStack() as stack:
        if record.mode != "clone":
            # Anything written by another run meanwhile would count as this run's work.
            stack.enter_context(held(Path(record.workspace), by=f"{record.run} (its end)", state=state_dir()))
        record, _ = await close(record, path, state_dir())
    return record, True
