"""DBOS itself in this process: one at most, silent, and in the caller's event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import sqlalchemy as sa
from dbos import DBOS

from ringfence.engine.base import Json
from ringfence.engine.dbos.control import QUEUE, VERSION, WORKFLOW, JsonSerializer
from ringfence.engine.liveness import Database
from ringfence.errors import UsageError

Begin = Callable[[str, str, Json], Awaitable[Json]]
"""Runs a workflow, given its id, its name and its argument."""

_begin: Begin | None = None
"""DBOS is one in a process, and so is its executor."""
_engine: sa.Engine | None = None


def silence() -> None:
    """Neither DBOS (which advertises) nor the database's pool writes to anybody's terminal."""
    for name in ("dbos", "sqlalchemy"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger("dbos").propagate = False


@DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
async def _workflow(name: str, argument: Json) -> Json:
    id = DBOS.workflow_id
    if _begin is None or id is None:
        raise asyncio.CancelledError
    return await _begin(id, name, argument)


def claim(begin: Begin) -> None:
    """Be the one executor of this process.

    Raises:
        UsageError: There is one.
    """
    global _begin
    if _begin is not None:
        raise UsageError(
            "this process has an executor of workflows already; open a second one in a process of its own"
        )
    _begin = begin


def release() -> None:
    """No longer be it."""
    global _begin
    _begin = None


def _called_away(context: sa.ExceptionContext) -> None:
    """A connection that could not be made at all is to be tried again, whatever the driver calls it.

    DBOS goes by words that the driver has for TCP only: a step's result would be lost where Postgres is away for a
    moment behind a Unix socket.
    """
    if getattr(context.original_exception, "sqlstate", None) is None and isinstance(
        context.sqlalchemy_exception, sa.exc.OperationalError
    ):
        context.is_disconnect = True


def _engine_of(database: Database) -> sa.Engine | None:
    if database.file is not None:
        return None
    engine = sa.create_engine(
        database.url, pool_size=20, max_overflow=0, pool_timeout=30, pool_pre_ping=True, pool_recycle=1800
    )
    sa.event.listen(engine, "handle_error", _called_away)
    return engine


def launch(database: Database, executor: str) -> None:
    """Start DBOS in the running event loop, after `claim`."""
    global _engine
    _engine = _engine_of(database)
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
            "notification_listener_polling_interval_sec": 0.2,
            "scheduler_polling_interval_sec": 3600.0,
        }
    )
    DBOS.listen_queues([QUEUE])
    DBOS.launch()


def destroy() -> None:
    """Stop what `launch` started. It blocks: not in the event loop."""
    global _engine
    DBOS.destroy()
    if _engine is not None:
        _engine.dispose()
        _engine = None


def restore(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop threads of its own again: it was left with those of DBOS, which have ended."""
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="asyncio"))
