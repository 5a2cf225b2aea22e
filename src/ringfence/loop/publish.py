"""Publishes a loop's work at its end: `--merge` fast-forwards the user's branch, `--pr` opens a pull request.

An event records each. `loop resume` repeats a step that was refused or interrupted; a second execution has no effect.
"""

import math
from collections.abc import Awaitable, Callable

import anyio

from ringfence.errors import ExitCode, InfrastructureFault, RingfenceError, UsageError
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.loop import Loop
from ringfence.loop.pull_request import open_pull_request
from ringfence.loop.report.build import outstanding
from ringfence.loop.report.files import PROPOSAL, write_report
from ringfence.loop.repository import DeliveryRefused
from ringfence.loop.store import LoopStore

Attest = Callable[[LoopDirectory, LoopStore], Awaitable[str]]
"""Attaches an attestation to the last commit of the delivered branch, pushes it, and returns its digest."""


class PublishCancelled(RingfenceError):
    """The user cancelled the publication."""

    exit_code = ExitCode.CANCELLED


async def publish(loop: Loop, attest: Attest) -> RingfenceError | None:
    """Do the requested steps that are not done yet; return the first error, if any.

    Args:
        loop: The loop, whose branch is delivered.
        attest: Attests the branch before a pull request is opened, so that the request's checks find the attestation.
    """
    options = outstanding(loop.directory, loop.store.loop, loop.settings, loop.store.events)
    if not options:
        return None
    problem: RingfenceError | None = PublishCancelled(
        f"{' and '.join(options)} not done; `ringfence loop resume {loop.id[-6:]}` does it"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when_stopped, loop, tasks.cancel_scope)
        problem = await _publish(loop, options, attest)
        tasks.cancel_scope.cancel()
    await write_report(loop.directory, loop.store, loop.repository, loop.plan, redactor=loop.redactor)
    return problem


async def _cancel_when_stopped(loop: Loop, scope: anyio.CancelScope) -> None:
    await loop.runs.pause(math.inf)
    scope.cancel()


async def _publish(loop: Loop, options: tuple[str, ...], attest: Attest) -> RingfenceError | None:
    problem: RingfenceError | None = None
    for option in options:
        try:
            await (_merge(loop) if option == "--merge" else _propose(loop, attest))
        except (DeliveryRefused, UsageError, InfrastructureFault) as exc:  # the other step may succeed
            problem = problem or exc
    return problem


async def _merge(loop: Loop) -> None:
    done = await loop.repository.merge_to_user()
    row = loop.store.loop
    loop.store.add_event(f"merged.{row.round}", "loop.merged", branch=done.branch, commit=done.tip)


async def _propose(loop: Loop, attest: Attest) -> None:
    try:
        attestation = await attest(loop.directory, loop.store)
    except RingfenceError as exc:  # the pull request says what it lacks by lacking it
        attestation = None
        loop.runs.notify(f"the pull request has no attestation: {exc}")
    row, base = loop.store.loop, loop.repository.origin.branch
    address = await open_pull_request(
        loop.repository.origin.source_path,
        row.branch,
        title=loop.plan.title,
        report=loop.directory.path / PROPOSAL,
        base=base.removeprefix("refs/heads/") if base is not None else None,
        attestation=attestation,
    )
    loop.store.add_event(
        f"proposed.{row.round}", "loop.proposed", address=address, attestation=attestation or ""
    )
