"""A Postgres of the tests' own: one cluster for each test session, in its files, on a Unix socket only."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

REQUIRED = "TEST_REQUIRES_POSTGRES"
"""Set where its absence is a failure."""
_HOME = Path("/usr/lib/postgresql")
_START_S = "60"
_CALM = (
    "listen_addresses = ''",
    "shared_buffers = 16MB",
    "max_connections = 200",
    "fsync = off",
    "autovacuum = off",
    "logging_collector = off",
    "log_min_messages = fatal",
)


def programs() -> Path | None:
    """Where Debian's package of the newest version keeps them; None if it is not installed."""
    found = sorted(_HOME.glob("*/bin/pg_ctl"), key=lambda path: float(path.parts[-3]))
    return found[-1].parent if found else None


class Cluster:
    """One that runs, until `close`.

    Args:
        home: Its programs.
        folder: Its files; short, since a socket lies in it, and not below a directory that only root may enter.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home
        self._folder = folder
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self._run("initdb", "--no-sync", "--auth=trust", "--username=tests", "--encoding=UTF8", "--locale=C")
        lines = [*_CALM, f"unix_socket_directories = '{folder}'"]
        with (folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write("\n".join(lines) + "\n")
        self.start()

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._home / program), "-D", str(self._folder / "data"), *words]
        user = self._user
        with (self._folder / "output").open("ab") as output:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                check=False,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                timeout=90,
                user=None if user is None else user.pw_uid,
                group=None if user is None else user.pw_gid,
                extra_groups=None if user is None else [],
            )
        assert done.returncode == 0, (self._folder / "output").read_text(errors="replace")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "-w", "-t", _START_S, "-l", str(self._folder / "log"), "start")

    def stop(self, *, mode: str = "immediate") -> None:
        """Stop it; `immediate` is what a power cut would be."""
        self._run("pg_ctl", "-w", "-t", _START_S, "-m", mode, "stop")

    def make_database(self) -> str:
        """A new database; returns its address."""
        name = f"tests_{uuid.uuid4().hex[:12]}"
        engine = sa.create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._url(name).replace("+psycopg", "")

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://tests@/{database}?host={self._folder}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start one, and leave nothing of it; the test is skipped where Postgres is not installed."""
    home = programs()
    if home is None:
        reason = f"Postgres is not installed ({_HOME}/*/bin): apt-get install postgresql"
        if os.environ.get(REQUIRED):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="ringfence-postgres-"))
    try:
        running = Cluster(home, folder)
        yield running
        running.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
