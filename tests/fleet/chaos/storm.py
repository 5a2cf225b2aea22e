"""Runs twenty agents while workers, the daemon, sandboxes and Postgres are killed, then checks what is left.

`make test-chaos` runs `python -m tests.fleet.chaos.storm --seconds 1800`. The faults are random, from a seed that is
printed: the same seed causes the same faults in the same order, at about the same moments.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from tests.fleet.chaos import accounts, twenty
from tests.fleet.chaos.machine import Machine, send
from tests.fleet.fleet_files import FleetFiles
from tests.leftovers import instances_below
from tests.postgres import Cluster, cluster, programs

from ringfence.removal import remove_tree
from ringfence.sandbox.container.labels import INSTANCE
from ringfence.sandbox.docker.client import open_engine

_PAUSE_S = (3.0, 9.0)
_FIRST_S = 12.0
"""Time before the first fault."""
_DRAIN_S = 400.0
_SEALED_S = 60.0


@dataclass
class Storm:
    """One storm over one fleet.

    Args:
        crew: The fleet's files.
        postgres: The server that holds its database.
        seed: Seed of the faults.
        log: Called with a line for each event.
    """

    crew: FleetFiles
    postgres: Cluster
    seed: int
    log: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    asked: dict[str, str] = field(default_factory=dict)
    """Jobs that were created by hand, by their keys."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.machine = Machine(Path(self.crew.environment["XDG_STATE_HOME"]))
        self.url = self.postgres.make_database()
        self.means = twenty.look()
        self._stopped: list[tuple[float, int]] = []
        self._faults = (
            *[self._kill_worker] * 4,
            *[self._kill_sandbox] * 5,
            self._remove_container,
            self._delete_pod,
            *[self._stop_worker] * 2,
            *[self._kill_daemon] * 2,
            self._stop_postgres,
        )

    def begin(self) -> None:
        """Start the fleet."""
        for line in self.means.lacking():
            self.log(line)
        self.crew.write(**twenty.configuration(self.crew, self.url, self.means))
        self.crew.up()

    def rage(self, seconds: float) -> None:
        """Cause faults for so many seconds, and create jobs meanwhile."""
        began = time.monotonic()
        self._live(_FIRST_S)
        while time.monotonic() - began < seconds:
            fault = self.random.choice(self._faults)
            name = fault.__name__.strip("_").replace("_", " ")
            what = fault()
            if what:
                self.done[name] += 1
                self.log(f"{time.monotonic() - began:5.0f} s  {name}: {what}")
            self._live(self.random.uniform(*_PAUSE_S))

    def _live(self, seconds: float) -> None:
        """Let the fleet work for a while; start a killed daemon again, and continue stopped workers."""
        deadline = time.monotonic() + seconds
        self._ask()
        while time.monotonic() < deadline:
            self._keep_up()
            time.sleep(0.5)

    def _keep_up(self) -> None:
        for moment, pid in [*self._stopped]:
            if time.monotonic() > moment:
                send(pid, signal.SIGCONT)
                self._stopped.remove((moment, pid))
        if not self.machine.daemons():
            self.crew.run("fleet", "up", "--detach")

    def _ask(self) -> None:
        key = f"key-{self.random.randrange(10**9)}"
        for _ in range(2):
            ended = self.crew.run("fleet", "trigger", twenty.MANUAL, "--key", key, "--json")
            if ended.code == 0:
                job = str(ended.json["job"]["id"])
                if self.asked.setdefault(key, job) != job:
                    raise AssertionError(f"key {key} has two jobs: {self.asked[key]} and {job}")
        (self.crew.project / twenty.WATCHING / f"{key}.task").write_text("task\n")

    def _kill_worker(self) -> str:
        workers = self.machine.workers()
        if not workers:
            return ""
        pid = self.random.choice(workers)
        return f"process {pid}" if send(pid, signal.SIGKILL) else ""

    def _stop_worker(self) -> str:
        workers = self.machine.workers()
        if not workers:
            return ""
        pid, seconds = self.random.choice(workers), self.random.choice([2.0, 25.0, 40.0])
        if not send(pid, signal.SIGSTOP):
            return ""
        self._stopped.append((time.monotonic() + seconds, pid))
        return f"process {pid}, for {seconds:g} s"

    def _kill_daemon(self) -> str:
        return ", ".join(f"process {pid}" for pid in self.machine.daemons() if send(pid, signal.SIGKILL))

    def _kill_sandbox(self) -> str:
        fences = self.machine.fences()
        pid = self.random.choice(fences) if fences else 0
        return f"process {pid}" if pid and send(pid, signal.SIGKILL) else ""

    def _remove_container(self) -> str:
        return anyio.run(self._remove_one) if self.means.image is not None else ""

    async def _remove_one(self) -> str:
        mine = instances_below(self.crew.home)
        async with await open_engine("docker") as engine:
            rows = [row for row in await engine.containers([INSTANCE]) if row["Labels"][INSTANCE] in mine]
            name = str(self.random.choice(rows)["Id"]) if rows else ""
            return f"container {name[:12]}" if name and await engine.remove(name) else ""

    def _delete_pod(self) -> str:
        pods = accounts.pods_of(self.crew) if self.means.pod_image is not None else []
        if not pods:
            return ""
        name = self.random.choice(pods)
        subprocess.run(["kubectl", "delete", "pod", name, "--wait=false"], check=False, capture_output=True)
        return f"pod {name}"

    def _stop_postgres(self) -> str:
        seconds = self.random.choice([0.0, 1.0, 4.0, 8.0])
        self.postgres.stop()
        time.sleep(seconds)
        self.postgres.start()
        return f"for {seconds:g} s"

    def settle(self) -> None:
        """Create no more jobs; wait until all jobs have ended."""
        for _, pid in self._stopped:
            send(pid, signal.SIGCONT)
        self._stopped.clear()
        configuration = twenty.configuration(self.crew, self.url, self.means, is_busy=False)
        self.crew.write(**configuration)
        self._until(lambda: self._reloaded(), _DRAIN_S, lambda: "the daemon does not reload")
        self._until(
            lambda: not accounts.read(self.url).unended(),
            _DRAIN_S,
            lambda: f"no end: {accounts.read(self.url).unended()}",
        )
        self._until(lambda: not self._unsealed(), _SEALED_S, lambda: f"not sealed: {self._unsealed()}")
        self._until(
            lambda: accounts.read(self.url).executors == twenty.WORKERS,
            _SEALED_S,
            lambda: f"{accounts.read(self.url).executors} workers take jobs, not {twenty.WORKERS}",
        )
        self.crew.does("fleet", "down")

    def _reloaded(self) -> bool:
        self._keep_up()
        return self.crew.run("fleet", "reload").code == 0

    def _unsealed(self) -> dict[str, object]:
        return {name: found for name, found in accounts.records(self.crew).items() if found[0] != "sealed"}

    def _until(self, is_it: Callable[[], bool], seconds: float, why: Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        while not is_it():
            if time.monotonic() > deadline:
                raise AssertionError(why())
            self._keep_up()
            time.sleep(1.0)

    def wrong(self) -> list[str]:
        """Return everything that is not as it must be."""
        books = accounts.read(self.url)
        wrong = accounts.wrong_ends(books)
        there = {job["id"] for job in books.jobs}
        wrong += [f"{job} of {key} is lost" for key, job in self.asked.items() if job not in there]
        keys = Counter(job["dedupe_key"] for job in books.jobs if job["dedupe_key"] is not None)
        wrong += [f"key {key} has {count} jobs" for key, count in keys.items() if count > 1]
        wrong += self._unfollowed(books) + accounts.given_up(books, twenty.RETRIES)
        wrong += [f"record {name}: {found}" for name, found in self._unsealed().items()]
        known = {row["run_id"] for row in books.attempts}
        wrong += [
            f"record {name} is no attempt's" for name in accounts.records(self.crew) if name not in known
        ]
        if books.locks or books.executors:
            wrong.append(f"{books.locks} advisory locks and {books.executors} executors are left")
        if self.means.pod_image is not None:
            wrong += [f"pod {name} is left" for name in accounts.pods_of(self.crew)]
        return wrong + accounts.own_faults(self.crew) + accounts.left_behind(self.crew)

    def _unfollowed(self, books: accounts.Books) -> list[str]:
        followed = Counter(job["parent"] for job in books.jobs if job["trigger"] == "after")
        due = {
            job["id"]
            for job in books.jobs
            if job["agent"] in twenty.FOLLOWERS and job["state"] in ("succeeded", "unverified")
        }
        return [
            f"{job} has {followed[job]} followers, not {int(job in due)}"
            for job in {*due, *followed}
            if followed[job] != (job in due)
        ]

    def summary(self) -> str:
        """Summarize what happened, in one line."""
        books = accounts.read(self.url)
        ends = ", ".join(f"{count} {state}" for state, count in books.states.most_common())
        harm = ", ".join(f"{count} x {name}" for name, count in self.done.most_common())
        return (
            f"storm, seed {self.seed}: {len(books.jobs)} jobs ({ends}), {len(books.attempts)} attempts, "
            f"{len(accounts.records(self.crew))} records; {harm}"
        )


def run(seconds: float, seed: int, *, log: Callable[[str], None], folder: Path | None = None) -> list[str]:
    """Run a storm; return what is wrong afterwards.

    Args:
        seconds: How long to cause faults.
        seed: Seed of the faults.
        log: Called with a line for each event.
        folder: The directory for the fleet's files; a short path. The files are kept if something is wrong.
    """
    home = Path(tempfile.mkdtemp(prefix="rf-storm-", dir=folder))
    home.chmod(0o755)
    temporary = home / "t"
    temporary.mkdir(mode=0o1777)
    temporary.chmod(0o1777)
    log(f"storm, seed {seed}, {seconds:g} s, in {home}")
    wrong = ["it broke off"]
    with cluster() as postgres, twenty.model() as addresses:
        passed = {name: os.environ[name] for name in ("KUBECONFIG",) if name in os.environ}
        crew = FleetFiles(home, {**addresses, **passed, "TMPDIR": str(temporary)})
        storm = Storm(crew, postgres, seed, log)
        try:
            storm.begin()
            storm.rage(seconds)
            storm.settle()
            wrong = storm.wrong()
            log(storm.summary())
        except AssertionError as error:
            wrong = [str(error)]
        finally:
            for pid in storm.machine.workers():
                send(pid, signal.SIGCONT)
            crew.down()
            for pid in [*storm.machine.daemons(), *storm.machine.workers()]:
                send(pid, signal.SIGKILL)
    if not wrong:
        remove_tree(home)
    return wrong


def main() -> int:
    """Run one storm; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    if programs() is None:
        print("Postgres is not installed: apt-get install postgresql")
        return 1
    wrong = run(options.seconds, options.seed, log=lambda line: print(line, flush=True))
    for line in wrong:
        print(f"WRONG: {line}")
    print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
