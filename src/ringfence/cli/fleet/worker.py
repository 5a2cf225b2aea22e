"""`ringfence fleet worker`: this machine joins a fleet."""

import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import LogFormatOption
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.cli.fleet.log import Log
    from ringfence.fleet.tracing.traces import Traces


def worker(
    *,
    told: Annotated[
        bool,
        typer.Option("--told", hidden=True, help="Read what to work on from stdin, as the daemon says it."),
    ] = False,
    slots: Annotated[int, typer.Option("--slots", min=1, max=256, help="Number of jobs in parallel.")] = 4,
    log_format: LogFormatOption = None,
) -> None:
    """Run jobs of a fleet on this machine until stopped.

    The environment variable RINGFENCE_FLEET_DATABASE names the fleet's database.
    """
    import json

    import anyio

    url = os.environ.get("RINGFENCE_FLEET_DATABASE", "")
    said: dict[str, Any] = {}
    if told:
        said = json.loads(sys.stdin.readline() or "{}")
        url, slots = said.get("url", ""), said.get("slots", slots)
    elif endpoint := os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        said = {"traces": {"endpoint": endpoint}}
    if log_format is not None:
        said["log_format"] = log_format
    if not url:
        raise UsageError("RINGFENCE_FLEET_DATABASE is not set; give the fleet's database, postgresql://…")
    anyio.run(_work, url, slots, said, told)


async def _work(url: str, slots: int, said: dict[str, Any], told: bool) -> None:
    import anyio

    from ringfence.cli.fleet.log import Log
    from ringfence.config.paths import state_dir
    from ringfence.fleet.worker.worker import Worker

    log = Log(said.get("log_format", "text"))
    work = Worker(
        url,
        state=state_dir(),
        slots=slots,
        tell=log,
        say=partial(log, event="worker.noted"),
        traces=_traces(said, log),
    )

    async def watch_parent() -> None:
        # Not by a thread that reads: the process could not end before its parent does.
        while True:
            await anyio.wait_readable(sys.stdin.fileno())
            if not os.read(sys.stdin.fileno(), 4096):
                break
        work.stop()

    async def watch_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                work.stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_signals)
        if told:
            tasks.start_soon(watch_parent)
        await work.run()
        tasks.cancel_scope.cancel()


def _traces(said: dict[str, Any], log: "Log") -> "Traces | None":
    """Where traces go, by what the worker was told, or finds in its environment."""
    from pydantic import ValidationError

    from ringfence.fleet.config.model import TraceSettings
    from ringfence.fleet.tracing.opening import open_traces

    told: dict[str, Any] = said.get("traces") or {}
    try:
        settings = TraceSettings.model_validate(told) if told else None
    except ValidationError as exc:
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is {told['endpoint']!r}; write http://HOST:PORT, without a user or a query"
        ) from exc
    return open_traces(settings, fleet=said.get("fleet", "fleet"), tell=partial(log, event="traces.failed"))
