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
"""After its last job a worker is at rest."""
_LISTED, _LOOKS = 100_000, 30
_DEATHS = 8
_SCHEDULES, _SCHEDULES_EACH = 1000, 10
_USER = 60_777
"""Nobody's number: an ordinary user without an account."""
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
        """A command, to its end."""
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
        """A new job's id."""
        return str(self.client.post("agents", agent, "jobs", body={})["job"]["id"])

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database says, past the daemon."""
        if self._postgres is not None:
            with self._postgres.connect() as connection:
                return [tuple(row) for row in connection.exec_driver_sql(query)]
        with sqlite3.connect(f"file:{self.state}/fleet/fleet.db?mode=ro", uri=True, timeout=10) as database:
            return database.execute(query).fetchall()

    def waits(self, ask: Callable[[], bool]) -> None:
        """Until it is so."""
        deadline = time.monotonic() + _PATIENCE_S
        while not ask():
            if time.monotonic() > deadline:
                raise TimeoutError((self.state / "fleet" / "daemon.log").read_text()[-2000:])
            time.sleep(0.05)

    def waits_for(self, count: int) -> None:
        """Until so many jobs have ended well."""
        self.waits(lambda: self.ended() == count)

    def ended(self, state: str = "unverified") -> int:
        """How many jobs have ended so."""
        return int(self.rows(f"SELECT count(*) FROM fleet_jobs WHERE state = '{state}'")[0][0])


@contextmanager
def _started(
    fleet: dict[str, Any], agents: dict[str, dict[str, Any]], turns: list[Any], *, user: int | None = None
) -> Iterator[_Fleet]:
    """A fleet whose agents follow one script, each in a small workspace of its own; of another user if that is said."""
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
        crew = _Fleet(home, fleet, settings, user)
        crew.run("fleet", "up", "--detach")
        try:
            crew.waits(lambda: bool(crew.rows("SELECT 1 FROM ringfence_executors")) or not fleet["workers"])
            yield crew
        finally:
            crew.run("fleet", "down", "--now")


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
    with _started({"workers": 1}, {"one": {}}, _DONE) as crew:
        entered: dict[str, float] = {}
        for number in range(_TRIGGERS + 2):
            began = time.time() * 1e3
            job = crew.trigger("one")
            if number >= 2:
                entered[job] = began
            crew.waits_for(number + 1)
        starts = dict(crew.rows("SELECT job, started_ms FROM fleet_attempts"))
        whole = dict(crew.rows("SELECT id, ended_ms FROM fleet_jobs"))
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
    """As an ordinary user; and as root, whose sandboxes take a program more each, if that is who measures."""
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
        Path(str(sa.make_url(url).query["host"])).chmod(0o711)  # its socket is for every user of this machine
    with _started(fleet, agents, _DONE, user=user) as crew:
        warm = [crew.trigger(name) for name in agents for _ in range(2)]
        crew.waits_for(len(warm))
        status = crew.client.get("status")
        daemon, workers = [int(status["pid"])], [int(pid) for pid in status["workers"]]
        used = [sum(map(_cpu_s, pids)) for pids in (daemon, workers)]
        began = time.monotonic()
        for number in range(count):
            crew.trigger(f"agent{number % _AGENTS}")
        crew.waits_for(len(warm) + count)
        taken = time.monotonic() - began
        each = [
            (sum(map(_cpu_s, pids)) - before) / count * 1e3
            for pids, before in zip((daemon, workers), used, strict=True)
        ]
        attempts = crew.rows("SELECT count(*), max(number) FROM fleet_attempts")[0]
    is_once = attempts == (len(warm) + count, 1)
    kind = "SQLite" if postgres is None else "Postgres"
    whose = "as root" if user is None and os.getuid() == 0 else "as an ordinary user"
    return Row(
        f"{count} jobs of a turn each, in bubblewrap, {_AGENTS} at once, on {kind}, {whose}",
        "≥ 20 jobs/s on two cores, none lost",
        f"{count / taken:.1f} jobs/s, each {'once' if is_once else 'NOT once'}",
        f"{taken:.1f} s; of processors, each: daemon {each[0]:.0f} ms, workers {each[1]:.0f} ms",
        is_once and count / taken >= 20,
    )


def _idle() -> list[Row]:
    every = {"schedules": {"often": {"every": "1m"}}}
    agents: dict[str, dict[str, Any]] = {f"agent{number}": dict(every) for number in range(_IDLE_AGENTS)}
    with _started({"workers": 1}, agents, _DONE) as crew:
        pid = int(crew.client.get("status")["pid"])
        crew.waits(lambda: crew.ended() >= _IDLE_AGENTS)  # all have fired once
        crew.waits(lambda: not crew.rows("SELECT 1 FROM fleet_jobs WHERE ended_ms IS NULL"))
        before, jobs, began = _cpu_s(pid), crew.ended(), time.monotonic()
        time.sleep(_IDLE_S)
        share = (_cpu_s(pid) - before) / (time.monotonic() - began)
        jobs = crew.ended() - jobs
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
    """A worker that has run jobs, and has none now."""
    rows = []
    with ExitStack() as stack:
        postgres = stack.enter_context(cluster()) if programs() is not None else None
        for database in (None, *([postgres] if postgres is not None else [])):
            fleet: dict[str, Any] = {"workers": 1}
            if database is not None:
                fleet["engine"] = {"type": "postgres", "url": database.make_database()}
            with _started(fleet, {"one": {}}, _DONE) as crew:
                pid = int(crew.client.get("status")["workers"][0])
                crew.trigger("one")
                crew.waits_for(1)
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
    with _started({"workers": 0}, {"one": {"enabled": False}}, _DONE) as crew:
        _fill(crew.state / "fleet" / "fleet.db")
        times, commands = [], []
        for _ in range(_LOOKS):
            began = time.perf_counter()
            found = crew.client.get("jobs", limit=50)
            times.append((time.perf_counter() - began) * 1e3)
            assert len(found) == 50, len(found)
        for _ in range(5):
            began = time.perf_counter()
            crew.run("job", "ls")
            commands.append((time.perf_counter() - began) * 1e3)
        counted = crew.rows("SELECT count(*) FROM fleet_jobs")[0][0]
    return Row(
        f"the newest 50 of {counted:,} jobs, from the daemon",
        "≤ 100 ms",
        p50_p99(times, digits=1),
        f"`ringfence job ls`, interpreter and imports included: p50 {statistics.median(commands):.0f} ms",
        statistics.median(times) <= 100,
    )


def _fill(file: Path) -> None:
    """Jobs that have ended, of a hundred agents."""
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
    with _started({"workers": 2, "concurrency": 4}, agents, turns) as crew:
        for number in range(_DEATHS):
            crew.waits(lambda: len(crew.rows("SELECT 1 FROM ringfence_executors")) == 2)
            for name in agents:
                crew.trigger(name)
            crew.waits(lambda: len(crew.rows("SELECT 1 FROM fleet_attempts WHERE ended_ms IS NULL")) == 4)
            worker, pid = crew.rows(
                "SELECT a.worker, e.pid FROM fleet_attempts a JOIN ringfence_executors e ON e.id = a.worker"
                " WHERE a.ended_ms IS NULL LIMIT 1"
            )[0]
            mine = crew.rows(f"SELECT job FROM fleet_attempts WHERE ended_ms IS NULL AND worker = '{worker}'")
            killed = time.time() * 1e3
            os.kill(int(pid), signal.SIGKILL)
            crew.waits_for((number + 1) * len(agents))
            for (job,) in mine:
                repeat_request = crew.rows(
                    f"SELECT started_ms FROM fleet_attempts WHERE job = '{job}' AND number = 2"
                )
                delays.append(repeat_request[0][0] - killed)
        ended = crew.rows("SELECT count(*) FROM fleet_jobs WHERE ended_ms IS NOT NULL")[0][0]
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
    with _started({"workers": 0, "concurrency": 1}, agents, _DONE) as crew:
        crew.waits(lambda: crew.rows("SELECT count(*) FROM fleet_jobs")[0][0] >= _SCHEDULES)
        found = crew.rows(f"SELECT created_ms FROM fleet_jobs ORDER BY id LIMIT {_SCHEDULES}")
    late = [created % 60_000 for (created,) in found]
    return Row(
        f"{_SCHEDULES} schedules due in one second: lateness of their jobs",
        "≤ 1 s",
        f"{p50_p99(late, digits=0)}, worst {max(late)} ms",
        f"{datetime.fromtimestamp(found[0][0] / 1e3):%H:%M}, {len(found)} jobs entered",  # noqa: DTZ006 -- for people
        max(late) <= 1000,
    )


def _cpu_s(pid: int) -> float:
    """What a process has used of processors, without its children."""
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
