"""A run from the command line: what died before is closed first, interrupts stop it."""

from typing import TYPE_CHECKING

import anyio
import typer

from ringfence.cli.signals import on_interrupt

if TYPE_CHECKING:
    from ringfence.job.recorder import View
    from ringfence.job.request import Part, RunRequest
    from ringfence.job.run import JobResult


async def run_to_end(request: "RunRequest", part: "Part", *, view: "View | None" = None) -> "JobResult":
    """Do a run; the first interrupt stops what is inside, the second everything."""
    from ringfence.job.run import JobRun
    from ringfence.job.store import JobStore
    from ringfence.job.sweep import sweep

    store = JobStore()
    for run_id in await sweep(store):
        typer.echo(f"ringfence: run {run_id} was interrupted; its record is closed", err=True)
    job = JobRun(request, part, view=view, store=store)

    def interrupt() -> None:
        typer.echo("ringfence: stopping; once more to stop at once", err=True)
        job.cancel()

    async with anyio.create_task_group() as tasks:
        await tasks.start(on_interrupt, interrupt)
        result = await job.run()
        tasks.cancel_scope.cancel()
    return result
