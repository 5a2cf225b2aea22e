"""Runs DBOS at most once in a process, without output, in the caller's event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa
from dbos import DBOS

from ringfence.engine.base import Json
from ringfence.engine.client import QUEUE, VERSION, WORKFLOW, JsonSerializer
from ringfence.engine.liveness import Database
from ringfence.errors import UsageError

Run = Callable[[str, str, Json], Awaitable[Json]]
"""Runs a workflow, given its id, its name and its argument."""
_NEVER_S = 3600.0
_run: Run | None = None
"""The executor of this process. A global, since DBOS passes no owner to a registered workflow."""
_engine: sa.Engine | None = None


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _workflow(name: str, argument: Json) -> Json:
    id = DBOS.workflow_id
    if _run is None or id is None:
        raise asyncio.CancelledError
    return await _run(id, name, argument)


def claim_process(run: Run) -> None:
    """Become the one executor of this process.

    Raises:
        UsageError: This process already has an executor.
    """
    global _run
    if _run is not None:
        raise UsageError(
            "this process has an executor of workflows already; open a second one in a process of its own"
        )
    _run = run


def release_process() -> None:
    """Allow this process to have another executor."""
    global _run
    _run = None


def launch(database: Database, executor: str, queues: Sequence[str]) -> None:
    """Start DBOS in the running event loop, to claim workflows of these queues. Call `claim_process` first."""
    global _engine
    if database.file is None:
        _engine = sa.create_engine(
            database.url, pool_size=20, max_overflow=0, pool_timeout=30, pool_pre_ping=True, pool_recycle=1800
        )
        sa.event.listen(_engine, "handle_error", _mark_disconnect)
    DBOS(
        config={
            "name": QUEUE,
            "system_database_url": database.url.render_as_string(hide_password=False),
            "system_database_engine": _engine,
            "serializer": JsonSerializer(),
            "application_version": VERSION,
            "executor_id": executor,
            "run_migrations": False,
            "enable_otlp": False,
            "log_level": "CRITICAL",
            "notification_coalesce_sec": 1.0,
            "scheduler_polling_interval_sec": _NEVER_S,
        }
    )
    DBOS.listen_queues(queues)
    DBOS.launch()


def _mark_disconnect(context: sa.ExceptionContext) -> None:
    """Make DBOS retry after any failure to open a connection, whatever the driver's error text.

    DBOS recognises the driver's texts for TCP only: if Postgres behind a Unix socket were unreachable for a moment, the
    result of a step would be lost.
    """
    if getattr(context.original_exception, "sqlstate", None) is None and isinstance(
        context.sqlalchemy_exception, sa.exc.OperationalError
    ):
        context.is_disconnect = True


def destroy() -> None:
    """Stop what `launch` started. Blocks for up to 0.2 s, so do not call it in the event loop."""
    global _engine
    DBOS.destroy()
    if _engine is not None:
        _engine.dispose()
        _engine = None


def restore_threads(loop: asyncio.AbstractEventLoop) -> None:
    """Give the event loop a new thread pool: DBOS had replaced it with its own, which has ended."""
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
