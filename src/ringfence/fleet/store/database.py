"""Opens the fleet's database: pools connections, runs transactions in threads and creates the tables."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio.to_thread
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    inspect,
    or_,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.schema import CreateColumn

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import keep_database_private
from ringfence.fleet.state_directory import database_file
from ringfence.fleet.store.spend import fill_spend_in
from ringfence.fleet.store.tables import ATTEMPTS, FORMER_NAMES, METADATA, SPEND

Result = TypeVar("Result")
_BUSY_S = 10
_RETRY_S = 0.5
_TRANSIENT = (OperationalError, InterfaceError, PoolTimeout)
"""Errors raised when the database is unreachable, busy, or has no connection left."""
_WRITES = "ringfence_writes"
_CREATION_LOCK = 0x72696E6A
"""Key of the advisory lock under which tables are created in PostgreSQL."""
_SHOWN = ("host", "port")
"""Parts of a URL's query that messages may show: the others may be passwords."""


def sqlite_url(state: Path | None = None, file: Path | None = None) -> str:
    """The URL of the default database of a fleet, for a fleet whose configuration names none.

    Args:
        state: The state directory; None: the user's.
        file: The fleet's file; None: the file of the first fleet of the state directory.
    """
    return f"sqlite:///{database_file(make_private_dir((state or state_dir()) / 'fleet'), file)}"


class Database:
    """A pool of connections to the database of a fleet.

    Args:
        url: `sqlite:///FILE` or `postgresql://...`.
        is_patient: Whether `read` and `write` wait, until they are cancelled, while the database is unreachable or has
            no connection left. A transaction may then be executed twice, if the connection broke during its commit.

    Raises:
        UsageError: The URL has neither form.
    """

    def __init__(self, url: str, *, is_patient: bool = False) -> None:
        self._is_patient = is_patient
        self._engine = _engine(url)
        self._where = shown(make_url(url))
        self.errors = 0
        """The number of database errors in this process."""

    @property
    def is_local(self) -> bool:
        """Whether the database is a file, which only this machine's daemon can use."""
        return self._engine.dialect.name == "sqlite"

    def create_tables(self) -> None:
        """Create missing tables, columns and indexes, and rename tables of version 0.1.

        Raises:
            InfrastructureFault: The database cannot be reached or written.
        """
        with (
            self._translated_errors(),
            self._engine.execution_options(**{_WRITES: True}).begin() as connection,
        ):
            # Two processes that create tables at once would both find them missing.
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
            existing = set(inspect(connection).get_table_names())
            _rename_tables(connection, existing)
            METADATA.create_all(connection)
            added = _add_columns(connection)
            if ATTEMPTS.c.is_counted in added:
                _set_is_counted(connection)
            if SPEND.name not in existing:
                fill_spend_in(connection)

    async def read(self, act: Callable[[Connection], Result]) -> Result:
        """Execute a function that only reads, in one transaction, in a thread.

        Raises:
            InfrastructureFault: The database cannot be used.
        """
        return await self._execute(self._engine, act)

    async def write(self, act: Callable[[Connection], Result]) -> Result:
        """Execute a function in one transaction, in a thread: all of it takes effect, or nothing.

        Raises:
            InfrastructureFault: The database cannot be used.
        """
        return await self._execute(self._engine.execution_options(**{_WRITES: True}), act)

    async def _execute(self, engine: Engine, act: Callable[[Connection], Result]) -> Result:
        while True:
            try:
                return await anyio.to_thread.run_sync(self._in_transaction, engine, act)
            except InfrastructureFault as exc:
                if not self._is_patient or not isinstance(exc.__cause__, _TRANSIENT):
                    raise
            await anyio.sleep(_RETRY_S)

    def _in_transaction(self, engine: Engine, act: Callable[[Connection], Result]) -> Result:
        with self._translated_errors(), engine.begin() as connection:
            return act(connection)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            self.errors += 1
            cause = str(getattr(exc, "orig", None) or exc).strip().splitlines()
            raise InfrastructureFault(
                f"the fleet's database {self._where!r} cannot be used: {cause[0] if cause else exc}; check that it runs "
                "and can be written, then try again"
            ) from exc


def shown(url: URL) -> str:
    """A URL for messages, without its password."""
    query = {name: value for name, value in url.query.items() if name in _SHOWN}
    return url.set(password=None, query=query).render_as_string(hide_password=True)


def _rename_tables(connection: Connection, existing: set[str]) -> None:
    for name, former in FORMER_NAMES.items():
        if former in existing and name not in existing:
            connection.exec_driver_sql(f"ALTER TABLE {former} RENAME TO {name}")


def _add_columns(connection: Connection) -> set[Column[Any]]:
    """Add columns and indexes that tables of an earlier version lack; return these columns.

    Each column has a default or is nullable.
    """
    added = set()
    inspector = inspect(connection)
    for table in METADATA.sorted_tables:
        known = {column["name"] for column in inspector.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")
                added.add(column)
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    return added


def _set_is_counted(connection: Connection) -> None:
    """Set the new column `is_counted` of attempts that an earlier version stored."""
    is_uncounted = or_(ATTEMPTS.c.reason == "its worker was stopped", ATTEMPTS.c.state == "blocked")
    connection.execute(update(ATTEMPTS).where(is_uncounted).values(is_counted=False))


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        raise UsageError(
            "the database's URL is invalid; write sqlite:///FILE or postgresql://HOST/NAME"
        ) from exc
    if parsed.get_backend_name() == "sqlite":
        engine = create_engine(parsed, connect_args={"timeout": _BUSY_S})
        event.listen(engine, "do_connect", _make_private)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin)
        return engine
    if parsed.get_backend_name() == "postgresql":
        # The dialect inspects this module, which another thread may be importing at the same time, with DBOS.
        importlib.import_module("sqlalchemy.orm")
        return create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            connect_args={"connect_timeout": _BUSY_S},
        )
    raise UsageError(
        f"the fleet's database cannot be {parsed.get_backend_name()!r}; write sqlite:///FILE or postgresql://HOST/NAME"
    )


def _make_private(_dialect: Any, _record: Any, arguments: list[Any], _options: Any) -> None:
    if arguments and arguments[0] != ":memory:":
        keep_database_private(Path(arguments[0]))


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # `_begin` begins transactions
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin(connection: Connection) -> None:
    # A deferred transaction that reads before it writes would fail if another transaction wrote in between.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")
