"""A database of ours: opened once, asked from threads, its errors in our words."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import keep_database_private

Answer = TypeVar("Answer")
_BUSY_S = 10
_AGAIN_S = 0.5
_PASSING = (OperationalError, InterfaceError, PoolTimeout)
"""It is away, busy, or has no room: that may be over in a moment."""
_WRITES = "ringfence_writes"
_MAKING = 0x72696E6A
"""Key of the advisory lock under which tables are made."""
_SHOWN = ("host", "port")
"""What of an address's query tells where it is; passwords may stand there, too."""


class Database:
    """A connection pool, and transactions on it.

    Args:
        url: `sqlite:///FILE` or `postgresql://...`.
        tables: What is kept there.
        what: Whose it is, for messages: `the fleet's database`.
        is_patient: Whether `read` and `write` wait, until they are cancelled, while it is away or has no room. What they
            do may then be done twice, if the connection broke just when it was done.

    Raises:
        UsageError: The URL is none of the two.
    """

    def __init__(self, url: str, tables: MetaData, *, what: str, is_patient: bool = False) -> None:
        self._is_patient = is_patient
        self._tables = tables
        self._what = what
        self._engine = _engine(url, what)
        self._where = shown(make_url(url))
        self.errors = 0
        """How often it could not be used, in this process."""

    def create_tables(self) -> None:
        """Make what is missing.

        Raises:
            InfrastructureFault: The database cannot be reached or written.
        """
        with self._told(), self._engine.execution_options(**{_WRITES: True}).begin() as link:
            if link.dialect.name == "postgresql":  # two that make a table at once would both not find it
                link.execute(select(func.pg_advisory_xact_lock(_MAKING)))
            self._tables.create_all(link)

    async def read(self, act: Callable[[Connection], Answer]) -> Answer:
        """Ask something in one transaction, in a thread.

        Raises:
            InfrastructureFault: As `create_tables`.
        """
        return await self._ask(self._engine, act)

    async def write(self, act: Callable[[Connection], Answer]) -> Answer:
        """Do something in one transaction, in a thread: all of it or nothing.

        Raises:
            InfrastructureFault: As `create_tables`.
        """
        writing = self._engine.execution_options(**{_WRITES: True})
        return await self._ask(writing, act)

    async def _ask(self, engine: Engine, act: Callable[[Connection], Answer]) -> Answer:
        while True:
            try:
                return await anyio.to_thread.run_sync(self._in, engine, act)
            except InfrastructureFault as exc:
                if not self._is_patient or not isinstance(exc.__cause__, _PASSING):
                    raise
            await anyio.sleep(_AGAIN_S)

    def _in(self, engine: Engine, act: Callable[[Connection], Answer]) -> Answer:
        with self._told(), engine.begin() as connection:
            return act(connection)

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            self.errors += 1
            cause = str(getattr(exc, "orig", None) or exc).strip().splitlines()
            raise InfrastructureFault(
                f"{self._what} {self._where!r} cannot be used: {cause[0] if cause else exc}; see to it that it "
                "runs and may be written, then try again"
            ) from exc


def shown(url: URL) -> str:
    """An address as messages and notes may tell it: without its password."""
    query = {name: value for name, value in url.query.items() if name in _SHOWN}
    return url.set(password=None, query=query).render_as_string(hide_password=True)


def _engine(url: str, what: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        raise UsageError(
            "the database's URL is none; write sqlite:///FILE or postgresql://HOST/NAME"
        ) from exc
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": _BUSY_S})
        event.listen(engine, "do_connect", _make_private)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin)
        return engine
    if parsed.get_backend_name() == "postgresql":
        # Its dialect looks into what another thread may be importing just now, with the engine of workflows.
        importlib.import_module("sqlalchemy.orm")
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={"connect_timeout": _BUSY_S},
        )
    raise UsageError(
        f"{what} cannot be {parsed.get_backend_name()!r}; write sqlite:///FILE or postgresql://HOST/NAME"
    )


def _make_private(_dialect: Any, _record: Any, words: list[Any], _options: Any) -> None:
    if words and words[0] != ":memory:":
        keep_database_private(Path(words[0]))


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we begin transactions ourselves, by the event below
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin(connection: Connection) -> None:
    # A transaction that reads before it writes would else fail when another has written in between.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
