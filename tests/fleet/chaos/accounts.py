"""Checks what must hold for a fleet after any sequence of faults: ends of jobs, records, and nothing left behind."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import sqlalchemy as sa
from tests.fleet.fleet_files import FleetFiles
from tests.leftovers import engines_below, instances_below, processes_below, things_of

from ringfence.fleet.store.tables import ATTEMPTS, JOBS
from ringfence.job.state import JobState
from ringfence.sandbox.container.labels import INSTANCE

_TERMINAL = frozenset(state.value for state in JobState if state.is_terminal)
_AGAIN = frozenset({"infrastructure", "interrupted", "sandbox_start"})
"""End states of attempts after which the job may have another attempt."""
_LOCKS = sa.text(
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_VERIFY = """
import json, sys
from pathlib import Path
from ringfence.journal import verify_run
for folder in map(Path, sys.argv[1:]):
    found = verify_run(folder)
    print(json.dumps([folder.name, found.status, found.reason]))
"""


@dataclass(frozen=True)
class Books:
    """The rows of a fleet's database."""

    jobs: Sequence[Mapping[str, Any]]
    attempts: Sequence[Mapping[str, Any]]
    locks: int
    """Number of advisory locks that are held."""
    executors: int
    """Number of executors that are registered."""

    @property
    def states(self) -> Counter[str]:
        """The number of jobs in each state."""
        return Counter(job["state"] for job in self.jobs)

    def unended(self) -> list[str]:
        """Return the jobs that have not ended."""
        return [f"{job['id']}: {job['state']}" for job in self.jobs if job["state"] not in _TERMINAL]

    def of(self, job: str) -> list[Mapping[str, Any]]:
        """Return a job's attempts, in order."""
        return sorted((row for row in self.attempts if row["job"] == job), key=lambda row: int(row["number"]))


def read(url: str) -> Books:
    """Read the rows of a database, Postgres or SQLite."""
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.NullPool)
    with engine.connect() as connection:
        locks = 0 if url.startswith("sqlite") else connection.execute(_LOCKS).scalar_one()
        return Books(
            [dict(row) for row in connection.execute(sa.select(JOBS)).mappings()],
            [dict(row) for row in connection.execute(sa.select(ATTEMPTS)).mappings()],
            locks,
            connection.execute(sa.text("SELECT count(*) FROM ringfence_executors")).scalar_one(),
        )


def wrong_ends(books: Books) -> list[str]:
    """Return the jobs that do not have exactly one end, or whose end contradicts their attempts."""
    wrong = [f"{each}: no end" for each in books.unended()]
    for job in (each for each in books.jobs if each["state"] in _TERMINAL):
        tries = books.of(job["id"])
        ends = [row["state"] for row in tries]
        is_whole = [row["number"] for row in tries] == [*range(1, job["attempt"] + 1)]
        if not is_whole or None in ends or set(ends[:-1]) - _AGAIN or job["ended_ms"] is None:
            wrong.append(f"{job['id']}: attempts {ends}")
        elif ends and job["state"] not in (ends[-1], "cancelled"):
            wrong.append(f"{job['id']}: ended {job['state']}, its last attempt {ends[-1]}")
    return wrong


def given_up(books: Books, retries: int) -> list[str]:
    """Return the jobs that a fault ended although they had retries left."""
    return [
        f"{job['id']}: {job['state']} after {job['attempt']} attempts: {job['reason']}"
        for job in books.jobs
        if job["state"] not in ("succeeded", "unverified", "cancelled") and job["attempt"] < retries
    ]


def own_faults(crew: FleetFiles) -> list[str]:
    """Return the log lines in which the daemon or a worker reports an internal error of its own."""
    return [line for line in crew.log.splitlines() if "Traceback" in line or "internal error" in line]


def records(crew: FleetFiles) -> dict[str, tuple[str, str | None]]:
    """Verify each record; return its status and the reason."""
    folders = sorted(path for path in (crew.state / "runs").iterdir() if (path / "journal.jsonl").exists())
    found: dict[str, tuple[str, str | None]] = {}
    for begin in range(0, len(folders), 500):
        some = [str(path) for path in folders[begin : begin + 500]]
        said = subprocess.run(
            [sys.executable, "-c", _VERIFY, *some], env=crew.environment, check=True, stdout=subprocess.PIPE
        )
        found |= {
            name: (status, reason) for name, status, reason in map(json.loads, said.stdout.splitlines())
        }
    return found


def left_behind(crew: FleetFiles) -> list[str]:
    """Return processes, containers, volumes and temporary files of a fleet that is down."""
    base = crew.home
    left = [*processes_below(base)]
    left += anyio.run(things_of, instances_below(base), engines_below(base))
    temporary = Path(crew.environment.get("TMPDIR") or tempfile.gettempdir())
    if temporary.is_relative_to(base):
        own = f"ringfence-{os.getuid()}", "ringfence-12345"  # each user's private directory stays, empty
        left += [
            f"temporary: {path.name}"
            for path in temporary.iterdir()
            if path.name not in own or any(path.iterdir())
        ]
    views = crew.state / "workspaces"
    return left + ([f"view: {path.name}" for path in views.iterdir()] if views.is_dir() else [])


def pods_of(crew: FleetFiles) -> list[str]:
    """Return the fleet's pods in the namespace of the kubeconfig, but for those that are being deleted."""
    listed = subprocess.run(
        ["kubectl", "get", "pods", "-l", INSTANCE, "-o", "json"], check=True, capture_output=True
    )
    mine = instances_below(crew.home)
    metadata = (pod["metadata"] for pod in json.loads(listed.stdout)["items"])
    return [
        str(one["name"])
        for one in metadata
        if one["labels"][INSTANCE] in mine and "deletionTimestamp" not in one
    ]
