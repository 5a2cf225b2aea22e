"""A run from the command line: what died before is closed first, interrupts stop it."""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio

from ringfence.cli.output import notify

if TYPE_CHECKING:
    from ringfence.job.outcome import RunResult
    from ringfence.job.recorder import View
    from ringfence.job.request import RunRequest


async def run_to_end(request: "RunRequest", *, view: "View | None" = None) -> "RunResult":
    """Do a run; the first interrupt stops what is inside, the second everything."""
    from ringfence.config.units import format_duration
    from ringfence.job.recovery import recover_runs
    from ringfence.job.run import JobRun

    def waiting(reason: str) -> None:
        notify(f"waiting for up to {format_duration(request.wait_s)}: {reason}; Ctrl-C ends it")

    request = replace(request, on_wait=waiting)
    job = JobRun(request, view=view, store=await recover_runs(notify))
    told = iter(("stopping; what was made is kept, once more to stop at once", "stopping at once"))

    def interrupt() -> None:
        job.cancel()
        line = next(told, None)
        if line is not None:
            notify(line)

    async with anyio.create_task_group() as tasks:
        await tasks.start(on_interrupt, interrupt)
        result = await job.run()
        tasks.cancel_scope.cancel()
    for line in result.problems:
        notify(line)
    return result


async def on_interrupt(act: Callable[[], None], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Call `act` at each SIGINT, SIGTERM or SIGHUP, until cancelled."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup says: go on
        numbers.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for _number in signals:
            act()
