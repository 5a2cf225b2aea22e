"""Working a loop in this process, until it has ended."""

from collections.abc import Callable
from contextlib import suppress

import anyio

from ringfence.check.suite import Check
from ringfence.config import Effective
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.frozen import frozen
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import root_cause
from ringfence.loop.cancelling import drain_pool
from ringfence.loop.handing_over import hand_over
from ringfence.loop.loading import kept
from ringfence.loop.machine.loop import Loop
from ringfence.loop.machine.turn import Runs
from ringfence.loop.machine.whole import Whole
from ringfence.loop.place import LoopPlace
from ringfence.loop.plans import plan_from_json
from ringfence.loop.record import LoopRecord
from ringfence.loop.repository import LoopRepository
from ringfence.loop.settings import LoopSettings
from ringfence.loop.state import LoopState
from ringfence.loop.store.loops import LoopStore, open_database
from ringfence.loop.store.rows import LoopRow

_LOOK_S = 0.5
_CLOSE_S = 60.0
"""A database that is away when the record is ended is waited for so long."""


@frozen
class Worked:
    """How a loop ended."""

    row: LoopRow
    problem: RingfenceError | None
    """Why what was asked for after the last story is not done."""


async def work(
    place: LoopPlace,
    *,
    effective: Effective,
    settings: LoopSettings,
    checks: tuple[Check, ...],
    runs: Runs,
    tell: Callable[[str], None],
    is_resumed: bool,
) -> Worked:
    """Work a loop to its end, or go on with it where its process died; how it ended.

    Args:
        place: The loop's.
        effective: The configuration of its runs.
        settings: Of the loop.
        checks: What decides about every story.
        runs: What does its runs, and stops them when it is told to.
        tell: Is told what a person should know.
        is_resumed: Whether it was begun before. Where not, it may have been cancelled before it is worked on.

    Raises:
        UsageError: Another process works on it.
        InfrastructureFault: Its database cannot be used.
    """
    with place.held():
        database = open_database(place.database_url)
        try:
            store = LoopStore(database, place.id)
            row = await store.go_on(kept(effective, settings), is_resumed=is_resumed)
            if row.state.is_end:
                return Worked(row, None)
            await recover_runs(tell)
            loop = Loop(
                place, store, plan_from_json(row.plan), settings, effective,
                LoopRepository.open(place.clones), runs, checks,
            )  # fmt: skip
            record = LoopRecord(store, row)
            try:
                await _execute(loop, record)
                problem = await hand_over(loop)
            finally:
                with anyio.move_on_after(_CLOSE_S, shield=True):
                    await record.close()
                with anyio.CancelScope(shield=True):
                    if effective.settings.pool.size:
                        await drain_pool(place.clones)
            return Worked(await store.get(), problem)
        finally:
            database.close()


async def _execute(loop: Loop, record: LoopRecord) -> None:
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, loop)
            tasks.start_soon(record.follow)
            await Whole(loop).work()
            tasks.cancel_scope.cancel()
    except Exception as exc:
        how = f"failed: {root_cause(exc)}"
        await loop.store.end(LoopState.INFRASTRUCTURE, f"the work on it {how}")
        raise InfrastructureFault(
            f"the work on loop {loop.id} {how}; `ringfence loop resume {loop.id}`"
        ) from exc


async def _watch(loop: Loop) -> None:
    """Stop what runs as soon as another process asks for it, or the loop's time is used up."""
    while True:
        with suppress(InfrastructureFault):
            if await loop.why_stopped() is not None:
                loop.runs.wind_down()
                return
        await anyio.sleep(_LOOK_S)
