"""Connects to the database of an engine and creates the table of executors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import refuse_remote

METADATA = sa.MetaData()
_NOW = sa.func.current_timestamp()
EXECUTORS = sa.Table(
    "ringfence_executors",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process", sa.Text, nullable=False),
    sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("started_at", sa.DateTime(timezone=True), nullable=False, server_default=_NOW),
    sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False, server_default=_NOW),
)
_CREATION_LOCK = 0x72696E67
"""Key of the advisory lock under which tables are created."""
_POSTGRES = {
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Options with which a connection fails within about ten seconds when the server's machine is gone."""


class Database:
    """The address of a database and a pool of connections. Creating one does not connect.

    Args:
        url: `sqlite:///FILE`, or `postgresql://user@host/database`.

    Raises:
        UsageError: The URL has neither form.
    """

    def __init__(self, url: str) -> None:
        try:
            parsed = sa.make_url(url)
        except sa.exc.ArgumentError as error:
            raise UsageError(
                "the address of the database cannot be read: use sqlite:///FILE or postgresql://…"
            ) from error
        kind = parsed.get_backend_name()
        options: dict[str, object]
        if kind == "postgresql":
            self.file = None
            given = {name: value for name, value in _POSTGRES.items() if name not in parsed.query}
            parsed = parsed.set(drivername="postgresql+psycopg").update_query_dict(given)
            options = {"pool_size": 2, "max_overflow": 2, "pool_pre_ping": True, "pool_recycle": 300}
        elif kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
            self.file = Path(str(parsed.database)).absolute()
            parsed = parsed.set(database=str(self.file))
            options = {"connect_args": {"timeout": 30.0}}
        else:
            raise UsageError(
                f"a database is sqlite:///FILE or postgresql://…, not {parsed.render_as_string()!r}"
            )
        self.url = parsed
        self.shown = parsed.set(query={}, password=None).render_as_string()
        self.engine = sa.create_engine(parsed, **options)

    def create_tables(self) -> None:
        """Create the file and the table of executors, if they do not exist.

        Raises:
            InfrastructureFault: The file is on a file system without locks, or the database cannot be reached.
        """
        if self.file is not None:
            self._create_file(self.file)
        with self.translated_errors(), self.engine.begin() as connection:
            if self.file is None:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
            connection.execute(sa.schema.CreateTable(EXECUTORS, if_not_exists=True))

    def _create_file(self, file: Path) -> None:
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
        """Translate errors of the database, without its password.

        Raises:
            InfrastructureFault: The database cannot be reached, or rejects a statement.
        """
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError) as error:
            cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
            raise InfrastructureFault(
                f"the database {self.shown!r} could not be used: {cause}; check that it runs and can be reached"
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()
