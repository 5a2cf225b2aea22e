"""Finishes a loop that ended by itself or was cancelled: delivers its branch, records the end and writes the report."""

from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.frozen import frozen
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.report.files import write_report
from ringfence.loop.repository import LoopRepository
from ringfence.loop.rows import DELIVERED, REJECTED_BY_PERSON
from ringfence.loop.state import LoopEnd, LoopState, StoryState
from ringfence.loop.store import LoopStore, now_ms
from ringfence.loop.story import Plan
from ringfence.secret import Redactor


@frozen
class LoopCompletion:
    """The errors with which a loop was completed."""

    delivery_error: RingfenceError | None
    """Why the branch was not delivered; None if it was, or if there was nothing to deliver."""
    report_problem: str | None
    """Why the report was not written; None if it was."""


async def finish_loop(
    directory: LoopDirectory,
    store: LoopStore,
    repository: LoopRepository,
    plan: Plan,
    end: LoopEnd,
    *,
    redactor: Redactor | None = None,
) -> LoopCompletion:
    """Deliver the loop's branch, record the loop's end and write the report.

    If delivery fails, the end's reason includes the error. A refusal turns `succeeded` and `incomplete` into
    `refused`; a git failure turns any end except `cancelled` into `infrastructure`.

    Args:
        directory: The loop's directories.
        store: The loop's rows, opened for changes.
        repository: The loop's repository.
        plan: The loop's stories.
        end: How the loop ends if the branch can be delivered.
        redactor: As for `write_report`.

    Raises:
        InfrastructureFault: The loop's database cannot be written.
    """
    error: RingfenceError | None = None
    try:
        await deliver_branch(repository, store)
    except RingfenceError as exc:
        error = exc
        reason = (
            f"{end.reason}; the branch could not be delivered: {exc}; then "
            f"`ringfence loop resume {directory.id[-6:]}` delivers it"
        )
        end = LoopEnd(_state_without_delivery(end.state, exc), reason)
    record_end(store, end)
    return LoopCompletion(error, await write_report(directory, store, repository, plan, redactor=redactor))


def _state_without_delivery(state: LoopState, error: RingfenceError) -> LoopState:
    if isinstance(error, InfrastructureFault):
        return state if state is LoopState.CANCELLED else LoopState.INFRASTRUCTURE
    return LoopState.REFUSED if state.is_settled else state


async def deliver_branch(repository: LoopRepository, store: LoopStore) -> None:
    """Deliver the loop's branch, if it contains commits that the loop made, and record its commit.

    Besides merged stories, these are the commits that revert stories which a person rejected.

    Raises:
        RepositoryRefused: The user's repository was removed.
        DeliveryRefused: The user's repository cannot take the branch in its current state.
        InfrastructureFault: Git failed.
    """
    if _has_commits(store):
        delivered = await repository.deliver()
        store.keep_step(DELIVERED, outcome="delivered", result={"commit": delivered.tip})


async def is_delivered(repository: LoopRepository, store: LoopStore) -> bool:
    """Whether the loop's branch was delivered with all of its commits, or has none.

    A branch that the user removed after its delivery counts as delivered. The user's repository is read only if no
    delivery is recorded, as by version 0.1.

    Raises:
        RepositoryRefused: The user's repository was removed.
        InfrastructureFault: Git failed.
    """
    if not _has_commits(store):
        return True
    step = store.step(DELIVERED)
    if step is None:
        return await repository.is_delivered()
    return bool(step.result["commit"] == await repository.tip())


def _has_commits(store: LoopStore) -> bool:
    is_reverted = any(step.name == REJECTED_BY_PERSON and step.result.get("commit") for step in store.steps())
    return is_reverted or any(row.is_merged for row in store.stories)


def record_end(store: LoopStore, end: LoopEnd) -> None:
    """Record the end of a loop and its event. Stories that were being worked on wait until the loop is resumed."""
    is_cancelled = end.state is LoopState.CANCELLED
    # A loop that had ended before it was cancelled already has this round's event `ended`.
    name = "cancelled" if is_cancelled and store.loop.state.is_end else "ended"
    passed = sum(row.state is StoryState.PASSED for row in store.stories)
    with store.transaction():
        for row in store.stories:
            if row.state is StoryState.RUNNING:
                store.update_story(row.id, state=StoryState.WAITING, stage="")
        store.add_event(
            f"{name}.{store.loop.round}", "loop.cancelled" if is_cancelled else "loop.completed",
            state=end.state.value, reason=end.reason, passed=passed,
        )  # fmt: skip
        store.update_loop(state=end.state, reason=end.reason, ended_ms=now_ms())
