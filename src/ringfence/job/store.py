"""Stores the jobs of this state directory: one row each, whose state is changed by compare-and-set."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import keep_database_private, remote_kind
from ringfence.frozen import frozen
from ringfence.job.state import JobState, may_follow

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    session_id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    sandbox_ids TEXT NOT NULL DEFAULT '',
    created_at TEXT NOT NULL,
    changed_at TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state);
"""
_BUSY_S = 10.0


@frozen
class JobRow:
    """A job's row in the store. Its events are in its journal."""

    id: str
    state: JobState
    session_id: str
    workspace: str
    sandbox_ids: tuple[str, ...]


class JobStore:
    """SQLite in the state directory. Safe to use from several processes.

    Args:
        file: The database; None is `jobs.db` in the state directory.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or make_private_dir(state_dir()) / "jobs.db"
        self._is_made = False
        self._held: sqlite3.Connection | None = None
        self._holders = 0

    def create(self, job_id: str, *, session_id: str, workspace: str) -> None:
        """Enter a new job as `queued`."""
        now = _now()
        with self._open() as database:
            database.execute(
                "INSERT INTO jobs (id, state, session_id, workspace, created_at, changed_at) VALUES (?,?,?,?,?,?)",
                (job_id, JobState.QUEUED, session_id, workspace, now, now),
            )

    def move(self, job_id: str, before: JobState, after: JobState) -> bool:
        """Set the state to `after` if it is still `before`; return False if another process was faster.

        Raises:
            UsageError: `after` may not follow `before`.
        """
        if not may_follow(before, after):
            raise UsageError(f"a job cannot go from {before.value!r} to {after.value!r}")
        with self._open() as database:
            done = database.execute(
                "UPDATE jobs SET state = ?, changed_at = ? WHERE id = ? AND state = ?",
                (after, _now(), job_id, before),
            )
            return done.rowcount == 1

    def add_sandbox(self, job_id: str, sandbox_id: str) -> None:
        """Note a sandbox before it is opened, so that its name is known after a crash."""
        with self._open() as database:
            database.execute(
                "UPDATE jobs SET sandbox_ids = trim(sandbox_ids || ' ' || ?) WHERE id = ?",
                (sandbox_id, job_id),
            )

    def get(self, job_id: str) -> JobRow | None:
        """One job."""
        with self._open() as database:
            row = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job_id,)).fetchone()  # noqa: S608
        return _row(row) if row else None

    def unfinished(self) -> list[JobRow]:
        """Jobs that have not reached an end: running ones, and those whose process died."""
        live = [state for state in JobState if not state.is_terminal]
        marks = ",".join("?" * len(live))
        with self._open() as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM jobs WHERE state IN ({marks})", live)  # noqa: S608
            return [_row(row) for row in rows]

    def session_ids(self) -> frozenset[str]:
        """The sessions of all jobs in the store."""
        with self._open() as database:
            return frozenset(row[0] for row in database.execute("SELECT DISTINCT session_id FROM jobs"))

    def remove(self, job_id: str) -> None:
        """Forget a job."""
        with self._open() as database:
            database.execute("DELETE FROM jobs WHERE id = ?", (job_id,))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep one connection open during a run, in the calling thread.

        Closing the last connection writes the log back and removes it, which is fifteen times the work of a change.
        """
        if self._held is None:
            with self._translated_errors():
                self._held = self._connect()
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                held, self._held = self._held, None
                held.close()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection on which each statement is a separate transaction."""
        with self._translated_errors():
            if self._held is not None:
                yield self._held
                return
            with closing(self._connect()) as database:
                yield database

    def _connect(self) -> sqlite3.Connection:
        keep_database_private(self._file)
        database = sqlite3.connect(self._file, timeout=_BUSY_S, isolation_level=None)
        try:
            self._make(database)
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            raise InfrastructureFault(
                f"the job store {str(self._file)!r} cannot be used: {exc}; see to its permissions and the disk, "
                "or set RINGFENCE_STATE_DIR to another directory"
            ) from exc

    def _make(self, database: sqlite3.Connection) -> None:
        """Create the table, with a write-ahead log: a change does not wait for the disk, but a power cut may undo it.

        The journals are authoritative, and a run whose change was undone is found by them. No such log on a network file
        system.
        """
        if not self._is_made:
            if remote_kind(self._file) is None:
                database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
            self._is_made = True
        database.execute("PRAGMA synchronous = NORMAL")


_COLUMNS = "id, state, session_id, workspace, sandbox_ids"


def _row(row: tuple[str, str, str, str, str]) -> JobRow:
    return JobRow(row[0], JobState(row[1]), row[2], row[3], tuple(row[4].split()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
