"""Working a loop in this process, until it has ended."""

from collections.abc import Callable

import anyio

from ringfence.config import Effective
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.frozen import frozen
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import root_cause
from ringfence.loop.cancellation import drain_pool
from ringfence.loop.configuration import kept
from ringfence.loop.control import ControlServer
from ringfence.loop.journal import LoopJournal
from ringfence.loop.loop import Loop
from ringfence.loop.plans import plan_from_json
from ringfence.loop.publish import publish
from ringfence.loop.rows import LoopRow
from ringfence.loop.runs import Runs
from ringfence.loop.scheduler import LoopScheduler
from ringfence.loop.settings import LoopSettings
from ringfence.loop.start import Begun
from ringfence.loop.state import LoopState
from ringfence.loop.store import now_ms

_CLOSE_S = 60.0
"""How long the end of the record may take."""


@frozen
class Worked:
    """How a loop ended."""

    row: LoopRow
    problem: RingfenceError | None
    """Why what was asked for after the last story is not done."""


async def work(
    begun: Begun,
    *,
    effective: Effective,
    settings: LoopSettings,
    runs: Runs,
    notify: Callable[[str], None],
    is_resumed: bool,
) -> Worked:
    """Work a loop to its end, or resume it where its process died; how it ended.

    Args:
        begun: The loop, held by this process.
        effective: The configuration of its runs.
        settings: Of the loop.
        runs: Does its runs, and stops them when it is told to.
        notify: Called with each line that the user should read.
        is_resumed: Whether it was begun before.

    Raises:
        InfrastructureFault: Its database cannot be used, or the work on it failed.
    """
    place, store = begun.place, begun.store
    if is_resumed:
        with store.transaction():
            store.begin_round()
            store.update_loop(configuration=kept(effective, settings), begun_ms=now_ms())
    server = ControlServer(place, cancel=runs.wind_down)
    store.subscribe(lambda _event: server.notify())
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        await recover_runs(notify)
        loop = Loop(
            place, store, plan_from_json(store.loop.plan), settings, effective, begun.repository, runs,
            begun.checks,
        )  # fmt: skip
        record = LoopJournal(store)
        try:
            tasks.start_soon(_stop_at_deadline, loop)
            await _execute(loop)
            problem = await publish(loop)
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await record.close()
            with anyio.CancelScope(shield=True):
                if effective.settings.pool.size:
                    await drain_pool(place.clones)
        tasks.cancel_scope.cancel()
    return Worked(store.loop, problem)


async def _execute(loop: Loop) -> None:
    try:
        await LoopScheduler(loop).work()
    except Exception as exc:
        how = f"failed: {root_cause(exc)}"
        loop.store.end(LoopState.INFRASTRUCTURE, f"the work on it {how}")
        raise InfrastructureFault(
            f"the work on loop {loop.id} {how}; `ringfence loop resume {loop.id}`"
        ) from exc


async def _stop_at_deadline(loop: Loop) -> None:
    """Stop what runs once the loop's time is used up."""
    await anyio.sleep(loop.seconds_left)
    loop.runs.wind_down()
