"""Cancels loops: those that a process works on, and those that were interrupted."""

from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError, UsageError
from ringfence.job.request import Notify
from ringfence.loop.control import send_cancel
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.plans import plan_from_json
from ringfence.loop.report.files import write_report
from ringfence.loop.repository import LoopRepository
from ringfence.loop.state import LoopState, StoryState
from ringfence.loop.store import LoopStore, now_ms, open_store
from ringfence.sandbox.pool.pool import Pool, PoolSize

_STARTING_S = 10.0
_END_S = 30.0


async def cancel(directory: LoopDirectory, notify: Notify, *, is_named: bool) -> str:
    """Cancel a loop. If no process works on it, deliver what passed and write the report here.

    Args:
        directory: The loop's directories.
        notify: Called with the reason if no report can be written.
        is_named: Whether the user named the loop. If so, a loop that is already cancelled is no error.

    Returns:
        A line for the user.

    Raises:
        UsageError: The loop has ended.
        InfrastructureFault: The loop's database cannot be read or written.
    """
    if await send_cancel(directory):
        return (
            f"loop {directory.id} was asked to stop; `ringfence loop logs --follow {directory.id[-6:]}` shows when it "
            "has"
        )
    with open_store(directory) as store:
        if store.loop.state.is_closed:
            ended = f"loop {directory.id} has ended already: {store.loop.state.value}"
            if is_named and store.loop.state is LoopState.CANCELLED:
                return ended
            raise UsageError(f"{ended}; nothing is cancelled, `ringfence loop ls` shows all loops")
        await _end(directory, store, notify)
        if not directory.clones.is_dir():
            return f"loop {directory.id} is cancelled"
        where = _name_branch(store)
    return f"loop {directory.id} is cancelled{where}; `ringfence loop resume {directory.id[-6:]}` resumes it"


async def give_up(directory: LoopDirectory, notify: Notify) -> None:
    """Cancel a loop that was interrupted and deliver the stories that passed, before its repository is removed.

    Args:
        directory: The directories of the loop, on which no process works.
        notify: Called with a line about the cancellation.

    Raises:
        RingfenceError: The loop's state cannot be read, or its work cannot be delivered to the user's repository. The
            loop is not cancelled then.
    """
    with open_store(directory) as store:
        if store.loop.state is not LoopState.RUNNING:
            return
        where = ""
        if directory.clones.is_dir():
            await _deliver(LoopRepository.open(directory.clones), store)
            where = _name_branch(store)
        await _end(directory, store, notify)
        notify(f"loop {directory.id} was interrupted; it is cancelled{where}")


async def _end(directory: LoopDirectory, store: LoopStore, notify: Notify) -> None:
    """Cancel a loop that no process works on."""
    with store.transaction():
        store.update_loop(state=LoopState.CANCELLED, reason="cancelled", ended_ms=now_ms())
        key = f"cancelled.{store.loop.round}"
        store.add_event(key, "loop.cancelled", state=LoopState.CANCELLED.value, reason="cancelled")
    try:
        await _deliver_and_report(directory, store, notify)
    except RingfenceError as exc:  # its repository was removed
        notify(f"no report of loop {directory.id} was written: {exc}")


async def _deliver_and_report(directory: LoopDirectory, store: LoopStore, notify: Notify) -> None:
    """Deliver the stories that passed and write the report, as the worker does at the end of a loop."""
    repository = LoopRepository.open(directory.clones)
    await _deliver(repository, store)
    for story in store.stories:
        if story.state is StoryState.RUNNING:
            store.update_story(story.id, state=StoryState.WAITING, stage="")
    problem = await write_report(directory, store, repository, plan_from_json(store.loop.plan))
    if problem is not None:
        notify(problem)


async def _deliver(repository: LoopRepository, store: LoopStore) -> None:
    if _has_work(store):
        await repository.deliver()


def _has_work(store: LoopStore) -> bool:
    """Whether a story passed in the loop, so that there is a branch to deliver."""
    return any(story.state is StoryState.PASSED and story.merged for story in store.stories)


def _name_branch(store: LoopStore) -> str:
    """Where the accepted stories of a loop are that was delivered, as the end of a message."""
    return f"; what passed is on branch {store.loop.branch!r}" if _has_work(store) else ""


async def drain_pool(clones: Path) -> None:
    """Close the warm sandboxes that the pool keeps for the next steps of a loop."""
    folder = state_dir() / "pool"
    if not folder.is_dir():
        return
    with anyio.move_on_after(_END_S, shield=True), suppress(RingfenceError, OSError):
        directory = await anyio.to_thread.run_sync(clones.resolve)
        await Pool(folder, PoolSize(0, 0.0)).drain(workspaces_in=directory, patience_s=_STARTING_S)
