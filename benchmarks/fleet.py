"""A fleet: from a trigger to its job's start, jobs through two cores, an idle daemon, long lists, a dead worker.

python -m benchmarks.fleet
"""

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from tests.postgres import Cluster, cluster, programs

from benchmarks.claim import Row, p50_p99
from ringfence.fleet.client import FleetClient, socket_path
from ringfence.sandbox.workspace.open import RESERVED_ID

_COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]
_PATIENCE_S = 300.0
_TRIGGERS = 40
_JOBS, _AGENTS = (300, 1000), 16
_IDLE_AGENTS, _IDLE_S = 100, 60.0
_REST_S = 15.0
"""The time after its last job in which a worker stops DBOS."""
_LISTED, _LOOKS = 100_000, 30
_DEATHS = 8
_SCHEDULES, _SCHEDULES_EACH = 1000, 10
_USER = 60_777
"""The id of an ordinary user, which has no account here."""
_DONE = [{"text": "Nothing to do."}]


class _Fleet:
    """A fleet in a directory of its own, with a daemon."""

    def __init__(
        self, home: Path, fleet: dict[str, Any], agents: dict[str, dict[str, Any]], user: int | None
    ) -> None:
        own = () if user is None else ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups")
        self._command = [*own, *_COMMAND]
        url = fleet.get("engine", {}).get("url")
        self._postgres = (
            None if url is None else sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        )
        self.state = home / "s" / "ringfence"
        self._file = home / "p" / "ringfence.yaml"
        self._file.parent.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RINGFENCE_")}
        self._environment = kept | {
            name: str(home / name[4].lower()) for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        }
        self._environment |= {"XDG_STATE_HOME": str(home / "s"), "TERM": "dumb"}
        self._file.write_text(json.dumps({"fleet": fleet, "agents": agents}))
        if user is not None:
            self._environment["HOME"] = str(home)
            for path in (home, *home.rglob("*")):
                os.chown(path, user, user)
        self.run("config", "trust", "--yes")
        self.client = FleetClient(socket_path(self.state))

    def run(self, *words: str) -> str:
        """Run a command of ringfence to its end, and return its output."""
        done = subprocess.run(
            [*self._command, *words],
            cwd=self._file.parent,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stderr}")
        return done.stdout

    def trigger(self, agent: str) -> str:
        """Add a job of an agent, and return its id."""
        return str(self.client.post("agents", agent, "jobs", body={})["job"]["id"])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, read from the database without the daemon."""
        if self._postgres is not None:
            with self._postgres.connect() as connection:
                return [tuple(row) for row in connection.exec_driver_sql(query)]
        with sqlite3.connect(f"file:{self.state}/fleet/fleet.db?mode=ro", uri=True, timeout=10) as database:
            return database.execute(query).fetchall()

    def wait_until(self, is_met: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_met():
            if time.monotonic() > deadline:
                raise TimeoutError((self.state / "fleet" / "daemon.log").read_text()[-2000:])
            time.sleep(0.05)

    def wait_for(self, count: int) -> None:
        """Wait until this many jobs have ended."""
        self.wait_until(lambda: self.ended() == count)

    def ended(self, state: str = "unverified") -> int:
        """The number of jobs that have ended in a state."""
        return int(self.rows(f"SELECT count(*) FROM fleet_jobs WHERE state = '{state}'")[0][0])


@contextmanager
def _started(
    fleet: dict[str, Any], agents: dict[str, dict[str, Any]], turns: list[Any], *, user: int | None = None
) -> Iterator[_Fleet]:
    """Start a fleet whose agents follow one script, each in a small workspace of its own.

    Args:
        fleet: The settings of the fleet.
        agents: The settings of the agents, by name.
        turns: The turns of the script.
        user: The id of the user as which the fleet runs; None: the caller.
    """
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        home = Path(name)
        home.chmod(0o711)
        (home / "script.yaml").write_text(json.dumps({"price": {"input": 1, "output": 1}, "turns": turns}))
        settings = {}
        for agent, more in agents.items():
            workspace = home / "p" / agent
            workspace.mkdir(parents=True)
            (workspace / "notes.txt").write_text("nothing\n")
            if os.getuid() == 0:
                for path in (workspace, workspace / "notes.txt"):
                    os.chown(path, RESERVED_ID, RESERVED_ID)
            settings[agent] = {
                "workspace": agent,
                "prompt": "Do nothing.",
                "run": {"model": f"scripted:{home}/script.yaml"},
                **more,
            }
        started = _Fleet(home, fleet, settings, user)
        started.run("fleet", "up", "--detach")
        try:
            started.wait_until(
                lambda: bool(started.rows("SELECT 1 FROM ringfence_executors")) or not fleet["workers"]
            )
            yield started
        finally:
            started.run("fleet", "down", "--now")


def measure() -> list[Row]:
    """All rows of this file."""
    return [
        _trigger_to_start(),
        *_throughputs(),
        *_idle(),
        _listing(),
        _death(),
        _schedules(),
    ]


def _trigger_to_start() -> Row:
    with _started({"workers": 1}, {"one": {}}, _DONE) as fleet_run:
        entered: dict[str, float] = {}
        for number in range(_TRIGGERS + 2):
            began = time.time() * 1e3
            job = fleet_run.trigger("one")
            if number >= 2:
                entered[job] = began
            fleet_run.wait_for(number + 1)
        starts = dict(fleet_run.rows("SELECT job, started_ms FROM fleet_attempts"))
        whole = dict(fleet_run.rows("SELECT id, ended_ms FROM fleet_jobs"))
    delays = [starts[job] - began for job, began in entered.items()]
    ends = [whole[job] - began for job, began in entered.items()]
    return Row(
        "from a trigger to its job's start, on an idle fleet",
        "p50 ≤ 250 ms",
        p50_p99(delays, digits=0),
        f"to its end: {p50_p99(ends, digits=0)}",
        statistics.median(delays) <= 250,
    )


def _throughputs() -> list[Row]:
    """Measure as an ordinary user and, if the caller is root, as root, whose sandboxes need one more process each."""
    users = [_USER, None] if os.getuid() == 0 else [None]
    with ExitStack() as stack:
        postgres = stack.enter_context(cluster()) if programs() is not None else None
        return [
            _throughput(jobs, database, user)
            for database in (None, *([postgres] if postgres is not None else []))
            for user in users
            for jobs in _JOBS
        ]


def _throughput(count: int, postgres: Cluster | None, user: int | None) -> Row:
    agents: dict[str, dict[str, Any]] = {f"agent{number}": {} for number in range(_AGENTS)}
    fleet: dict[str, Any] = {"workers": 2, "concurrency": _AGENTS}
    if postgres is not None:
        url = postgres.make_database()
        fleet["engine"] = {"type": "postgres", "url": url}
        Path(str(sa.make_url(url).query["host"])).chmod(0o711)  # so that other users reach the socket
    with _started(fleet, agents, _DONE, user=user) as fleet_run:
        warm = [fleet_run.trigger(name) for name in agents for _ in range(2)]
        fleet_run.wait_for(len(warm))
        status = fleet_run.client.get("status")
        daemon, workers = [int(status["pid"])], [int(pid) for pid in status["workers"]]
        used = [sum(map(_cpu_s, pids)) for pids in (daemon, workers)]
        began = time.monotonic()
        for number in range(count):
            fleet_run.trigger(f"agent{number % _AGENTS}")
        fleet_run.wait_for(len(warm) + count)
        taken = time.monotonic() - began
        each = [
            (sum(map(_cpu_s, pids)) - before) / count * 1e3
            for pids, before in zip((daemon, workers), used, strict=True)
        ]
        attempts = fleet_run.rows("SELECT count(*), max(number) FROM fleet_attempts")[0]
    is_once = attempts == (len(warm) + count, 1)
    kind = "SQLite" if postgres is None else "Postgres"
    user_text = "as root" if user is None and os.getuid() == 0 else "as an ordinary user"
    return Row(
        f"{count} jobs of a turn each, in bubblewrap, {_AGENTS} at once, on {kind}, {user_text}",
        "≥ 20 jobs/s on two cores, none lost",
        f"{count / taken:.1f} jobs/s, each {'once' if is_once else 'NOT once'}",
        f"{taken:.1f} s; of processors, each: daemon {each[0]:.0f} ms, workers {each[1]:.0f} ms",
        is_once and count / taken >= 20,
    )


def _idle() -> list[Row]:
    every = {"schedules": {"often": {"every": "1m"}}}
    agents: dict[str, dict[str, Any]] = {f"agent{number}": dict(every) for number in range(_IDLE_AGENTS)}
    with _started({"workers": 1}, agents, _DONE) as fleet_run:
        pid = int(fleet_run.client.get("status")["pid"])
        fleet_run.wait_until(lambda: fleet_run.ended() >= _IDLE_AGENTS)  # all have fired once
        fleet_run.wait_until(lambda: not fleet_run.rows("SELECT 1 FROM fleet_jobs WHERE ended_ms IS NULL"))
        before, jobs, began = _cpu_s(pid), fleet_run.ended(), time.monotonic()
        time.sleep(_IDLE_S)
        share = (_cpu_s(pid) - before) / (time.monotonic() - began)
        jobs = fleet_run.ended() - jobs
        resident_mb = _resident_mb(pid)
    return [
        Row(
            f"daemon of {_IDLE_AGENTS} agents with one-minute schedules: share of a core",
            "≤ 2 %",
            f"{share:.1%}",
            f"{jobs} jobs in {_IDLE_S:.0f} s",
            share <= 0.02,
        ),
        Row("the same: resident memory", "≤ 115 MB", f"{resident_mb:.0f} MB", "-", resident_mb <= 115),
        *_idle_workers(),
    ]


def _idle_workers() -> list[Row]:
    """Measure a worker that has run jobs and has none now."""
    rows = []
    with ExitStack() as stack:
        postgres = stack.enter_context(cluster()) if programs() is not None else None
        for database in (None, *([postgres] if postgres is not None else [])):
            fleet: dict[str, Any] = {"workers": 1}
            if database is not None:
                fleet["engine"] = {"type": "postgres", "url": database.make_database()}
            with _started(fleet, {"one": {}}, _DONE) as fleet_run:
                pid = int(fleet_run.client.get("status")["workers"][0])
                fleet_run.trigger("one")
                fleet_run.wait_for(1)
                time.sleep(_REST_S)
                before, began = _cpu_s(pid), time.monotonic()
                time.sleep(_IDLE_S)
                share = (_cpu_s(pid) - before) / (time.monotonic() - began)
                resident_mb = _resident_mb(pid)
            kind = "SQLite" if database is None else "Postgres"
            rows.append(
                Row(
                    f"a worker without work, on {kind}: share of a core, resident memory",
                    "≤ 1 %, ≤ 130 MB",
                    f"{share:.1%}, {resident_mb:.0f} MB",
                    "after a job",
                    share <= 0.01 and resident_mb <= 130,
                )
            )
    return rows


def _listing() -> Row:
    with _started({"workers": 0}, {"one": {"enabled": False}}, _DONE) as fleet_run:
        _fill(fleet_run.state / "fleet" / "fleet.db")
        times, commands = [], []
        for _ in range(_LOOKS):
            began = time.perf_counter()
            found = fleet_run.client.get("jobs", limit=50)
            times.append((time.perf_counter() - began) * 1e3)
            assert len(found) == 50, len(found)
        for _ in range(5):
            began = time.perf_counter()
            fleet_run.run("job", "ls")
            commands.append((time.perf_counter() - began) * 1e3)
        counted = fleet_run.rows("SELECT count(*) FROM fleet_jobs")[0][0]
    return Row(
        f"the newest 50 of {counted:,} jobs, from the daemon",
        "≤ 100 ms",
        p50_p99(times, digits=1),
        f"`ringfence job ls`, interpreter and imports included: p50 {statistics.median(commands):.0f} ms",
        statistics.median(times) <= 100,
    )


def _fill(file: Path) -> None:
    """Insert ended jobs of a hundred agents."""
    with sqlite3.connect(file, timeout=30) as database:
        database.executemany(
            "INSERT INTO fleet_jobs (id, agent, state, trigger, workspace, created_ms, started_ms, ended_ms, run_id,"
            " is_followed) VALUES (?, ?, 'unverified', 'manual', '/w', ?, ?, ?, ?, 1)",
            (
                (f"2026-01-01T00-00-00-{n:08x}", f"agent{n % 100}", n, n, n + 1, f"2026-01-01-{n:08x}")
                for n in range(_LISTED)
            ),
        )


def _death() -> Row:
    turns = [{"tools": [{"run": "sleep 2"}]}, *_DONE]
    delays: list[float] = []
    agents: dict[str, dict[str, Any]] = {f"agent{number}": {} for number in range(4)}
    with _started({"workers": 2, "concurrency": 4}, agents, turns) as fleet_run:
        for number in range(_DEATHS):
            fleet_run.wait_until(lambda: len(fleet_run.rows("SELECT 1 FROM ringfence_executors")) == 2)
            for name in agents:
                fleet_run.trigger(name)
            fleet_run.wait_until(
                lambda: len(fleet_run.rows("SELECT 1 FROM fleet_attempts WHERE ended_ms IS NULL")) == 4
            )
            worker, pid = fleet_run.rows(
                "SELECT a.worker, e.pid FROM fleet_attempts a JOIN ringfence_executors e ON e.id = a.worker"
                " WHERE a.ended_ms IS NULL LIMIT 1"
            )[0]
            mine = fleet_run.rows(
                f"SELECT job FROM fleet_attempts WHERE ended_ms IS NULL AND worker = '{worker}'"
            )
            killed = time.time() * 1e3
            os.kill(int(pid), signal.SIGKILL)
            fleet_run.wait_for((number + 1) * len(agents))
            for (job,) in mine:
                repeat_request = fleet_run.rows(
                    f"SELECT started_ms FROM fleet_attempts WHERE job = '{job}' AND number = 2"
                )
                delays.append(repeat_request[0][0] - killed)
        ended = fleet_run.rows("SELECT count(*) FROM fleet_jobs WHERE ended_ms IS NOT NULL")[0][0]
    is_whole = ended == _DEATHS * 4
    return Row(
        "SIGKILL of a worker, until its jobs run again elsewhere",
        "≤ 5 s, none lost, none twice",
        f"{p50_p99([delay / 1e3 for delay in delays], 's')}, worst {max(delays) / 1e3:.2f} s",
        f"{_DEATHS} workers killed, {len(delays)} jobs taken over, {ended} of {_DEATHS * 4} ended once",
        is_whole and max(delays) <= 5000,
    )


def _schedules() -> Row:
    cron = {f"s{number}": {"cron": "* * * * *"} for number in range(_SCHEDULES_EACH)}
    agents = {f"agent{number}": {"schedules": cron} for number in range(_SCHEDULES // _SCHEDULES_EACH)}
    with _started({"workers": 0, "concurrency": 1}, agents, _DONE) as fleet_run:
        fleet_run.wait_until(lambda: fleet_run.rows("SELECT count(*) FROM fleet_jobs")[0][0] >= _SCHEDULES)
        found = fleet_run.rows(f"SELECT created_ms FROM fleet_jobs ORDER BY id LIMIT {_SCHEDULES}")
    late = [created % 60_000 for (created,) in found]
    return Row(
        f"{_SCHEDULES} schedules due in one second: lateness of their jobs",
        "≤ 1 s",
        f"{p50_p99(late, digits=0)}, worst {max(late)} ms",
        f"{datetime.fromtimestamp(found[0][0] / 1e3):%H:%M}, {len(found)} jobs entered",  # noqa: DTZ006 -- for people
        max(late) <= 1000,
    )


def _cpu_s(pid: int) -> float:
    """The processor time of a process in seconds, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    names = {
        "start": _trigger_to_start,
        "throughput": _throughputs,
        "idle": _idle,
        "list": _listing,
        "death": _death,
        "schedules": _schedules,
    }
    chosen = [names[word]() for word in sys.argv[1:] if word in names] if len(sys.argv) > 1 else [measure()]
    for found in chosen:
        for row in found if isinstance(found, list) else [found]:
            print(row)
