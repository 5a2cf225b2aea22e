"""What was asked for once the loop is over: the user's branch moved forward to what passed, a pull request opened.

Each is told when it is done. What is not, since it was refused or the process died, `loop resume` does: both come to the
same again as once.
"""

import math

import anyio

from ringfence.errors import ExitCode, InfrastructureFault, RingfenceError, UsageError
from ringfence.loop.loop import Loop
from ringfence.loop.pull_request import open_pull_request
from ringfence.loop.report.build import outstanding
from ringfence.loop.report.files import PROPOSAL, write_report
from ringfence.loop.repository import DeliveryRefused


class HandOverStopped(RingfenceError):
    """The user stopped it."""

    exit_code = ExitCode.CANCELLED


async def hand_over(loop: Loop) -> RingfenceError | None:
    """Do what is left of it; why that could not be done, if so."""
    asked = outstanding(loop.place, loop.store.loop, loop.settings, loop.store.events)
    if not asked:
        return None
    problem: RingfenceError | None = HandOverStopped(
        f"{' and '.join(asked)} not done; `ringfence loop resume {loop.id[-6:]}` does it"
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_stopped, loop, tasks.cancel_scope)
        problem = await _hand_over(loop, asked)
        tasks.cancel_scope.cancel()
    await write_report(loop.place, loop.store, loop.repository, loop.plan, redactor=loop.redactor)
    return problem


async def _until_stopped(loop: Loop, scope: anyio.CancelScope) -> None:
    await loop.runs.pause(math.inf)
    scope.cancel()


async def _hand_over(loop: Loop, asked: tuple[str, ...]) -> RingfenceError | None:
    problem: RingfenceError | None = None
    for option in asked:
        try:
            await (_merge(loop) if option == "--merge" else _propose(loop))
        except (DeliveryRefused, UsageError, InfrastructureFault) as exc:  # the other one may go well
            problem = problem or exc
    return problem


async def _merge(loop: Loop) -> None:
    done = await loop.repository.merge_to_user()
    row = loop.store.loop
    loop.store.add_event(f"merged.{row.round}", "loop.merged", branch=done.branch, commit=done.tip)


async def _propose(loop: Loop) -> None:
    row, base = loop.store.loop, loop.repository.record.branch
    address = await open_pull_request(
        loop.repository.record.source_path,
        row.branch,
        title=loop.plan.title,
        report=loop.place.directory / PROPOSAL,
        base=base.removeprefix("refs/heads/") if base is not None else None,
    )
    loop.store.add_event(f"proposed.{row.round}", "loop.proposed", address=address)
