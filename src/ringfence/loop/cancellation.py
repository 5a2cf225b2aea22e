"""Cancels loops: those that a process works on, and those that were interrupted."""

from ringfence.errors import InfrastructureFault, RingfenceError, UsageError
from ringfence.job.request import Notify
from ringfence.loop.completion import deliver_branch, finish_loop, is_delivered, record_end
from ringfence.loop.control import send_cancel
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.journal import open_with_record
from ringfence.loop.plans import plan_from_json
from ringfence.loop.repository import DeliveryRefused, LoopRepository
from ringfence.loop.rows import DELIVERED
from ringfence.loop.state import LoopEnd, LoopState
from ringfence.loop.store import LoopStore

_CANCELLED = LoopEnd(LoopState.CANCELLED, "cancelled")


async def cancel(directory: LoopDirectory, notify: Notify, *, is_named: bool) -> str:
    """Cancel a loop. If no process works on it, deliver what passed and write the report here.

    Args:
        directory: The loop's directories.
        notify: Called with the reason if the branch cannot be delivered or no report can be written.
        is_named: Whether the user named the loop. If so, an already cancelled loop is not an error.

    Returns:
        A line for the user.

    Raises:
        UsageError: The loop is closed: it succeeded, it is incomplete, or it was cancelled before. A loop that ended at
            a limit, with a question or with an error can be cancelled, as it can be resumed.
        InfrastructureFault: The loop's database cannot be read or written.
    """
    if await send_cancel(directory):
        return (
            f"loop {directory.id} was asked to stop; `ringfence loop logs --follow {directory.id[-6:]}` shows when it "
            "has"
        )
    with open_with_record(directory) as store:
        if store.loop.state.is_closed:
            ended = f"loop {directory.id} has ended already: {store.loop.state.value}"
            if is_named and store.loop.state is LoopState.CANCELLED:
                return ended
            raise UsageError(f"{ended}; nothing is cancelled, `ringfence loop ls` shows all loops")
        where = await _cancel_stored(directory, store, notify)
        if not directory.repository_dir.is_dir():
            return f"loop {directory.id} is cancelled"
    return f"loop {directory.id} is cancelled{where}; `ringfence loop resume {directory.id[-6:]}` resumes it"


async def deliver_before_removal(directory: LoopDirectory, notify: Notify, *, is_forced: bool) -> str:
    """Deliver what is not delivered yet of a loop whose working files will be removed; cancel it unless it is closed.

    Args:
        directory: The directories of the loop, on which no process works.
        notify: Called with a line about the cancellation.
        is_forced: Whether the working files are removed even if the work cannot be delivered.

    Returns:
        Where the loop's work is, as the end of a message; empty if it has none.

    Raises:
        DeliveryRefused: The user's repository cannot take the work, and `is_forced` is not set.
        InfrastructureFault: Git failed, and `is_forced` is not set; or the loop's database cannot be used.
    """
    with open_with_record(directory) as store:
        state, error = store.loop.state, None
        if directory.repository_dir.is_dir():
            error = await _deliver_missing(directory, store)
            if error is not None and not is_forced:
                raise error
        if (
            not state.is_closed
        ):  # it cannot be resumed without its files, and would be in the way of another loop
            await _cancel_stored(directory, store, notify)
            how = "was interrupted" if state is LoopState.RUNNING else f"had ended with {state.value!r}"
            notify(f"loop {directory.id} {how}; it is cancelled")
        if error is not None:
            if store.step(DELIVERED) is None:
                store.keep_step(DELIVERED, outcome="refused", result={"commit": None})
            return "; its work was not delivered"
        has_passed = any(row.is_merged for row in store.stories)
        return f"; what passed is on branch {store.loop.branch!r}" if has_passed else ""


async def _deliver_missing(directory: LoopDirectory, store: LoopStore) -> RingfenceError | None:
    """Deliver the loop's branch unless it was delivered. Return the error, with the options that the user has."""
    repository = LoopRepository.open(directory.repository_dir)
    try:
        if not await is_delivered(repository, store):
            await deliver_branch(repository, store)
    except RingfenceError as exc:
        kind = InfrastructureFault if isinstance(exc, InfrastructureFault) else DeliveryRefused
        return kind(
            f"loop {directory.id} is not removed, as its branch could not be delivered: {exc}; then `ringfence loop rm "
            f"{directory.id[-6:]}` delivers it, or remove the loop without its work by --force"
        )
    return None


async def _cancel_stored(directory: LoopDirectory, store: LoopStore, notify: Notify) -> str:
    """Cancel a loop that no process works on. Return where its work is, as the end of a message."""
    try:
        repository, plan = LoopRepository.open(directory.repository_dir), plan_from_json(store.loop.plan)
    except RingfenceError as exc:
        record_end(store, _CANCELLED)
        notify(f"the branch of loop {directory.id} is not delivered, and no report is written: {exc}")
        return ""
    finished = await finish_loop(directory, store, repository, plan, _CANCELLED)
    if finished.report_problem is not None:
        notify(finished.report_problem)
    if finished.delivery_error is not None:
        notify(f"the branch of loop {directory.id} could not be delivered: {finished.delivery_error}")
        return ""
    has_passed = any(row.is_merged for row in store.stories)
    return f"; what passed is on branch {store.loop.branch!r}" if has_passed else ""
