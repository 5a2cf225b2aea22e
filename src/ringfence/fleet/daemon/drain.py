"""Drains a fleet whose daemon stops: no more jobs start, and those that run have some time to end."""

from contextlib import suppress

import anyio

from ringfence.engine import WorkflowState
from ringfence.errors import InfrastructureFault
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.job import ACTIVE, Job

_END_S = 40.0
_UNREACHABLE_S = 10.0
_FOLLOW_UPS_S = 10.0


async def drain(daemon: Daemon) -> None:
    """Start no more jobs, and wait for those that run, for `fleet.drain` at most.

    The workers queue unfinished jobs again, without using up an attempt. A database that cannot be reached may be
    back before the time is over.
    """
    daemon.is_ready = False
    daemon.dispatcher.is_accepting = False
    with anyio.move_on_after(daemon.fleet.settings.drain):
        while not daemon.stopping_at_once.is_set():
            with suppress(InfrastructureFault):  # the dispatcher logs it
                await daemon.jobs.requeue_starting()
                if not await _active_jobs(daemon):
                    break
            await anyio.sleep(0.2)
    with anyio.move_on_after(_END_S):
        await _report_unfinished(daemon)
    with anyio.move_on_after(_FOLLOW_UPS_S):  # the rest is done at the next start
        while await _has_follow_ups(daemon):  # noqa: ASYNC110 -- workers end workflows
            await anyio.sleep(0.2)


async def _report_unfinished(daemon: Daemon) -> None:
    """Log the jobs that are queued again.

    Raises:
        InfrastructureFault: The database cannot be reached.
    """
    give_up_at = anyio.current_time() + _UNREACHABLE_S
    while True:
        try:
            ids = [job.id for job in await _active_jobs(daemon)]
            break
        except InfrastructureFault as exc:
            if anyio.current_time() > give_up_at:
                raise InfrastructureFault(f"{exc}; running jobs are repeated after the next start") from exc
        await anyio.sleep(0.2)
    if ids:
        line = (
            "not finished in time; these jobs are queued again and start at the next `ringfence fleet up`: "
            f"{', '.join(ids)}"
        )
        daemon.log(line, event="fleet.left", level="info", jobs=ids)


async def _has_follow_ups(daemon: Daemon) -> bool:
    """Whether a worker still runs hooks or reports a job's end; work left for the next start does not count."""
    running = await daemon.engine.list(states=[WorkflowState.RUNNING])
    left = await daemon.jobs.active_workflows()
    return bool(daemon.supervisor.pids) and any(each.id not in left for each in running)


async def _active_jobs(daemon: Daemon) -> list[Job]:
    return await daemon.jobs.list(states=ACTIVE, limit=1000)
