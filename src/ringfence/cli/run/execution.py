"""Runs a request from the command line: recovers interrupted runs first, and stops the run on signals."""

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
    """Run a request. The first interrupt cancels the agent and keeps its work; the second stops everything."""
    from ringfence.config.units import format_duration
    from ringfence.job.interrupted_runs import recover_runs
    from ringfence.job.run import JobRun

    def report_wait(reason: str) -> None:
        notify(f"waiting for up to {format_duration(request.wait_s)}: {reason}; Ctrl-C stops waiting")

    request = replace(request, on_wait=report_wait)
    job = JobRun(request, view=view, store=await recover_runs(notify), ends_on_sigterm=True)
    messages = iter(
        ("stopping; the work so far is kept. Press Ctrl-C again to stop immediately.", "stopping immediately")
    )

    def interrupt() -> None:
        job.cancel()
        line = next(messages, None)
        if line is not None:
            notify(line)

    async with anyio.create_task_group() as tasks:
        await tasks.start(handle_interrupts, interrupt)
        result = await job.run()
        tasks.cancel_scope.cancel()
    for line in result.problems:
        notify(line)
    return result


async def handle_interrupts(handler: Callable[[], None], *, task_status: anyio.abc.TaskStatus[None]) -> None:
    """Call `handler` at each SIGINT, SIGTERM or SIGHUP, until cancelled."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup, where the run must continue
        numbers.append(signal.SIGHUP)
    with anyio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for _number in signals:
            handler()
