"""Works on a loop in this process until the loop ends."""

import anyio
import anyio.to_thread

from ringfence.config import Effective
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.frozen import frozen
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import root_cause
from ringfence.job.request import Notify
from ringfence.loop.configuration import kept
from ringfence.loop.control import ControlServer
from ringfence.loop.journal import LoopJournal
from ringfence.loop.loop import Loop
from ringfence.loop.plans import plan_from_json
from ringfence.loop.publish import Attest, publish
from ringfence.loop.rows import LoopRow
from ringfence.loop.runs import Runs
from ringfence.loop.scheduler import LoopScheduler
from ringfence.loop.settings import LoopSettings
from ringfence.loop.start import StartedLoop
from ringfence.loop.state import LoopState
from ringfence.loop.store import now_ms
from ringfence.sandbox.pool.pool import drain_pool

_CLOSE_S = 60.0
"""Time limit for closing the record."""


@frozen
class Worked:
    """The end of a loop."""

    row: LoopRow
    problem: RingfenceError | None
    """Why the branch could not be merged or proposed as configured; None if it was, or if that is not configured."""


async def work(
    started: StartedLoop,
    *,
    effective: Effective,
    settings: LoopSettings,
    runs: Runs,
    notify: Notify,
    attest: Attest,
    is_resumed: bool,
) -> Worked:
    """Work on a loop until it ends, from the start or from the step that was interrupted.

    Args:
        started: The loop, whose lock this process holds.
        effective: The configuration of the loop's runs.
        settings: The loop's settings.
        runs: Executes the loop's runs, and stops them on request.
        notify: Called with each line that the user should read.
        attest: Attests the loop's branch before a pull request is opened.
        is_resumed: Whether the loop was started by an earlier process.

    Raises:
        InfrastructureFault: The loop's database cannot be used, or the work failed.
    """
    directory, store = started.directory, started.store
    if is_resumed:
        with store.transaction():
            store.begin_round()
            store.update_loop(configuration=kept(effective, settings), started_ms=now_ms())
    server = ControlServer(directory, cancel=runs.stop_gracefully)
    store.subscribe(lambda _event: server.notify())
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        await recover_runs(notify)
        loop = Loop(
            directory, store, plan_from_json(store.loop.plan), settings, effective, started.repository, runs,
            started.checks,
        )  # fmt: skip
        record = LoopJournal(store)
        store.subscribe(record.append)
        try:
            tasks.start_soon(_stop_at_deadline, loop)
            await _execute(loop)
            problem = await publish(loop, attest)
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await anyio.to_thread.run_sync(record.close)
            with anyio.CancelScope(shield=True):
                if effective.settings.pool.size:
                    await drain_pool(directory.repository_dir)
        tasks.cancel_scope.cancel()
    return Worked(store.loop, problem)


async def _execute(loop: Loop) -> None:
    try:
        await LoopScheduler(loop).run()
    except Exception as exc:
        cause = root_cause(exc)
        loop.store.end(LoopState.INFRASTRUCTURE, f"the work on the loop failed: {cause}")
        raise InfrastructureFault(
            f"the work on loop {loop.id} failed: {cause}; continue it with `ringfence loop resume {loop.id}`"
        ) from exc


async def _stop_at_deadline(loop: Loop) -> None:
    """Stop all runs when the loop's time is used up."""
    await anyio.sleep(loop.seconds_left)
    loop.runs.stop_gracefully()
