"""The command `ringfence fleet worker`: runs jobs of a fleet on this machine."""

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import LogFormatOption
from ringfence.cli.settings import duration_of
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.cli.fleet.log import Log
    from ringfence.fleet.tracing.traces import Traces


def worker(
    *,
    reads_stdin: Annotated[
        bool,
        typer.Option("--told", hidden=True, help="Read the settings from stdin, as the daemon sends them."),
    ] = False,
    slots: Annotated[int, typer.Option("--slots", min=1, max=256, help="Number of jobs in parallel.")] = 4,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="LABEL", help="A label that agents' `placement` can name; repeatable."
        ),
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(
            "--records",
            metavar="URL",
            help="The fleet's record store, as `fleet.records.url` of its file names it.",
        ),
    ] = None,
    drain: Annotated[
        str | None,
        typer.Option(
            "--drain",
            metavar="DURATION",
            help="How long running jobs may go on after SIGTERM; default: not at all.",
        ),
    ] = None,
    heartbeat: Annotated[
        Path | None,
        typer.Option(
            "--heartbeat",
            metavar="FILE",
            help="Set the time of FILE every few seconds while the fleet knows this worker.",
        ),
    ] = None,
    log_format: LogFormatOption = None,
) -> None:
    """Run jobs of a fleet on this machine until stopped.

    On SIGTERM it takes no more jobs, and ends when those that run have ended, or after --drain; what has not ended
    runs again elsewhere. A second signal ends it at once. The environment variable RINGFENCE_FLEET_DATABASE names the
    fleet's database.
    """
    import json

    import anyio

    url = os.environ.get("RINGFENCE_FLEET_DATABASE", "")
    settings: dict[str, Any] = {}
    if reads_stdin:
        settings = json.loads(sys.stdin.readline() or "{}")
        url, slots = settings.get("url", ""), settings.get("capacity", slots)
    elif endpoint := os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        settings = {"traces": {"endpoint": endpoint}}
    if log_format is not None:
        settings["log_format"] = log_format
    if not reads_stdin:
        settings |= {"labels": _checked_labels(label or []), "records": {"url": records} if records else None}
    if not url:
        raise UsageError(
            "RINGFENCE_FLEET_DATABASE is not set; give the fleet's Postgres database, postgresql://…; the workers of a "
            "fleet on SQLite are those that its daemon starts (`fleet.workers`)"
        )
    drain_s = 0.0 if drain is None else duration_of("--drain", drain)
    anyio.run(_work, url, slots, settings, reads_stdin, drain_s, heartbeat)


def _checked_labels(labels: list[str]) -> list[str]:
    from ringfence.fleet.config.model import is_worker_label

    for name in labels:
        if not is_worker_label(name):
            raise UsageError(f"--label {name!r}: write up to 63 letters, digits, '.', '_' and '-'")
    return labels


async def _work(
    url: str,
    capacity: int,
    settings: dict[str, Any],
    reads_stdin: bool,
    drain_s: float,
    heartbeat: Path | None,
) -> None:
    import anyio

    from ringfence.cli.fleet.log import Log
    from ringfence.config.paths import state_dir
    from ringfence.config.units import format_duration
    from ringfence.fleet.worker.worker import Worker

    log = Log(settings.get("log_format", "text"))
    labels: list[str] = settings.get("labels") or []

    def report_ready(worker: str) -> None:
        for_labels = f"; its labels: {', '.join(labels)}" if labels else ""
        line = f"worker {worker[:8]} takes jobs, {capacity} at a time{for_labels}"
        log(line, event="worker.ready", level="info", worker=worker)

    work = Worker(
        url,
        state=state_dir(),
        capacity=capacity,
        log=log,
        say=partial(log, event="worker.noted"),
        traces=_traces(settings, log),
        labels=labels,
        records=(settings.get("records") or {}).get("url"),
        on_registered=None if reads_stdin else report_ready,  # a daemon reports its own workers
        heartbeat=heartbeat,
    )

    async def watch_parent() -> None:
        # A thread blocked in a read would keep this process alive until its parent ends.
        while True:
            await anyio.wait_readable(sys.stdin.fileno())
            if not os.read(sys.stdin.fileno(), 4096):
                break
        work.stop()

    async def watch_signals() -> None:
        is_draining = False
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if is_draining or not drain_s:
                    work.stop()
                    continue
                is_draining = True
                line = f"stopping: running jobs have {format_duration(drain_s)} to end; the rest runs again elsewhere"
                log(line, event="worker.draining", level="info")
                tasks.start_soon(work.drain, drain_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_signals)
        if reads_stdin:
            tasks.start_soon(watch_parent)
        await work.run()
        tasks.cancel_scope.cancel()


def _traces(settings: dict[str, Any], log: "Log") -> "Traces | None":
    """Open the traces that the worker's settings name; None if they name no endpoint."""
    from pydantic import ValidationError

    from ringfence.fleet.config.model import TraceSettings
    from ringfence.fleet.tracing.setup import open_traces

    traces: dict[str, Any] = settings.get("traces") or {}
    try:
        trace_settings = TraceSettings.model_validate(traces) if traces else None
    except ValidationError as exc:
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is {traces['endpoint']!r}; write http://HOST:PORT, without a user or a query"
        ) from exc
    return open_traces(
        trace_settings, fleet=settings.get("fleet", "fleet"), log=partial(log, event="traces.failed")
    )
