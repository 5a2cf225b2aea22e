"""The database that an engine lies in: its address, its connections, and the tables of ours in it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import refuse_remote

METADATA = sa.MetaData()
EXECUTORS = sa.Table(
    "ringfence_executors",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column(
        "started_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()
    ),
    sa.Column(
        "seen_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.current_timestamp()
    ),
)
RECOVERIES = sa.Table(
    "ringfence_recoveries",
    METADATA,
    sa.Column("workflow_id", sa.Text, primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
    sa.Column("given_up", sa.Text),
)
_MAKING = 0x72696E67
"""Key of the advisory lock under which tables are made."""
_POSTGRES = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""A peer that is gone without a word is noticed within some ten seconds."""


class Database:
    """Where it is. Making one connects to nothing.

    Args:
        url: `sqlite:///FILE`, or `postgresql://user@host/database`.

    Raises:
        UsageError: It is neither.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except sa.exc.ArgumentError as error:
            raise UsageError(
                "the address of the database cannot be read: use sqlite:///FILE or postgresql://…"
            ) from error
        kind = parsed.get_backend_name()
        if kind == "postgresql":
            self.file = None
            given = {name: value for name, value in _POSTGRES.items() if name not in parsed.query}
            parsed = parsed.set(drivername="postgresql+psycopg").update_query_dict(given)
        elif kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
            self.file = Path(str(parsed.database)).absolute()
            parsed = parsed.set(database=str(self.file))
        else:
            raise UsageError(
                f"a database is sqlite:///FILE or postgresql://…, not {parsed.render_as_string()!r}"
            )
        self.url = parsed
        self.shown = parsed.set(query={}, password=None).render_as_string()
        self.engine = sa.create_engine(parsed, **self._options())

    def _options(self) -> dict[str, object]:
        if self.file is not None:
            return {"connect_args": {"timeout": 30.0}}
        return {"pool_size": 2, "max_overflow": 2, "pool_pre_ping": True, "pool_recycle": 300}

    def prepare(self) -> None:
        """Make the file and our tables, where they are not there yet.

        Raises:
            InfrastructureFault: The file lies where it cannot be locked, or the database cannot be reached.
        """
        if self.file is not None:
            self._make_file(self.file)
        with self.translated_errors(), self.engine.begin() as connection:
            if self.file is None:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING)))
            for table in METADATA.sorted_tables:
                connection.execute(sa.schema.CreateTable(table, if_not_exists=True))

    def _make_file(self, file: Path) -> None:
        refuse_remote(file)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
        except OSError as error:
            raise InfrastructureFault(
                f"could not make the database {str(file)!r}: {error.strerror}"
            ) from error
        with self.translated_errors(), self.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Errors of the database are ours, without its password.

        Raises:
            InfrastructureFault: It could not be reached, or did not do what it was asked.
        """
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise InfrastructureFault(
                f"the database {self.shown!r} could not be used: {cause}; see that it runs and can be reached"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


_COUNT = sa.text(
    "INSERT INTO ringfence_recoveries (workflow_id, count) VALUES (:id, 1) ON CONFLICT (workflow_id) "
    "DO UPDATE SET count = ringfence_recoveries.count + 1 RETURNING count"
)


class RecoveryCounter:
    """How often each workflow of a database was taken over from an executor that died.

    Args:
        database: Which.
        limit: A workflow that is taken over more often is given up.
    """

    def __init__(self, database: Database, *, limit: int) -> None:
        self._engine = database.engine
        self._limit = limit

    def count(self, workflow_id: str) -> None:
        """Count one, and give the workflow up if it was one too many."""
        with self._engine.begin() as connection:
            counted = connection.execute(_COUNT, {"id": workflow_id}).scalar_one()
            if counted > self._limit:
                reason = f"given up: {counted} executors died while they ran it"
                mine = RECOVERIES.c.workflow_id == workflow_id
                connection.execute(sa.update(RECOVERIES).where(mine).values(given_up=reason))

    def given_up(self, workflow_id: str) -> str | None:
        """Why it is not to be run again; None if it is."""
        query = sa.select(RECOVERIES.c.given_up).where(RECOVERIES.c.workflow_id == workflow_id)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar()

    def forget(self, workflow_ids: Sequence[str]) -> None:
        """Remove the counts of workflows that are no more."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(RECOVERIES).where(RECOVERIES.c.workflow_id.in_(workflow_ids)))
