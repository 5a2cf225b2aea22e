"""An example fleet for tests and screenshots: its file, jobs in every state, spend, workers, questions and records."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
from sqlalchemy import Connection, Delete, Insert, Table, Update, insert

from ringfence import events
from ringfence.config.trust import trust_content
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.store.database import Database, sqlite_url
from ringfence.fleet.store.tables import ATTEMPTS, BLOBS, INBOX, JOBS, SPEND, WORKERS
from ringfence.job.outcome import PATCH_NAME
from ringfence.job.state import JobState
from ringfence.journal import Journal, run_dir, run_dirs

ROOT = Path(__file__).resolve().parents[2]
FILE = """
fleet:
  name: shop
  timezone: Europe/Berlin
  workers: 0
  budget: {{cost_usd: 20}}
agents:
  nightly-deps:
    description: Updates dependencies and repairs what breaks
    prompt: Update the dependencies, run the suite, and repair what breaks.
    workspace: "{folder}"
    budget: {{cost_usd: 5}}
    schedules: {{nightly: {{cron: "30 2 * * 1-5"}}}}
    egress: {{allow: ["pypi.org:443"]}}
  bug-triage:
    description: Reproduces new issues with a failing test
    prompt: Write a failing test for the issue.
    workspace: "{folder}"
    budget: {{cost_usd: 2, tokens: 2000000}}
    schedules: {{hourly: {{every: 1h}}}}
    triggers: {{follow: {{type: after, agent: nightly-deps, states: [succeeded]}}}}
  docs-keeper:
    description: Keeps the documentation in step with the code
    prompt: Compare the documentation with the code.
    workspace: "{folder}"
    schedules: {{weekly: {{cron: "0 6 * * 1"}}}}
  flaky-hunter:
    description: Finds tests that fail now and then
    prompt: Run the suite twenty times.
    workspace: "{folder}"
    enabled: false
"""
LIVE_RUN = "2026-11-28T07-00-00-00001111"
"""The run of the running job; it has no record until a test writes one."""
_TASKS = (
    "Update pydantic to 2.14 and repair what breaks",
    "Reproduce #812: the export loses time zones",
    "Compare the documentation of `runs export` with the code",
    "Find the cause of test_upload_retries failing",
    "Bump aiohttp and run the suite",
    "Reproduce #815: crash on an empty configuration",
    "Check the links of all pages",
    "Repair the benchmark job",
)
_AGENTS = ("nightly-deps", "bug-triage", "docs-keeper", "flaky-hunter")
_ENDS: tuple[tuple[JobState, str], ...] = (
    (JobState.SUCCEEDED, "the check passed: python3 -m unittest -q"),
    (JobState.CHECK_RED, "the check failed with exit code 1: 2 of 18 tests failed"),
    (JobState.SUCCEEDED, "the check passed: pytest -q"),
    (JobState.UNVERIFIED, "the agent is done; no check is configured"),
    (JobState.BLOCKED, "it asks to connect to api.github.com:443"),
    (JobState.SUCCEEDED, "the check passed: pytest -q"),
    (JobState.LIMIT, "the cost limit of $1.00 was reached"),
    (JobState.CANCELLED, "cancelled by hand"),
    (JobState.SUCCEEDED, "the check passed: pytest -q"),
    (JobState.INFRASTRUCTURE, "the model's API did not answer for 120 s"),
    (JobState.TIMED_OUT, "the time limit of 30 min was reached"),
)
_USAGE = events.Usage(input_tokens=4200, output_tokens=380)


@dataclass
class Example:
    """The directories of a fleet, and the ids of jobs with a record."""

    home: Path
    finished: str = ""
    """A job that repaired examples/red-suite: its record is sealed, and its changes can be applied."""
    live: str = ""
    """A running job."""
    broken: str = ""
    """A job whose record was changed after it was sealed."""
    hostile: str = ""
    """A job whose every text is hostile."""
    large: str = ""
    """A job that changed 50,001 lines of one file, and has a log of several pages."""

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.home / "state"

    @property
    def project(self) -> Path:
        """The workspace."""
        return self.home / "project"


def make_example(home: Path, *, hostile: str = "a <b>text</b>") -> Example:
    """Make the files of a fleet, and a real run, in an environment that names its directories.

    Args:
        home: An empty directory.
        hostile: The text of everything that the agent of one of the jobs wrote.
    """
    made = Example(home)
    shutil.copytree(
        ROOT / "examples" / "red-suite", made.project, ignore=shutil.ignore_patterns("__pycache__")
    )
    identity = ["-c", "user.name=U", "-c", "user.email=u@example.com"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Start"]):
        subprocess.run(["git", *identity, *words], cwd=made.project, check=True)
    shutil.copy(ROOT / "examples" / "red-suite.script.yaml", home)
    command = [sys.executable, "-m", "ringfence", "run", "Fix the failing tests", "--workspace", "project"]
    options = [
        "--model",
        "scripted:red-suite.script.yaml",
        "--mode",
        "clone",
        "--verify",
        "python3 -m unittest -q",
    ]
    done = subprocess.run([*command, *options], cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = run_dirs()
    for number in range(3):
        _write_run(
            f"2026-11-28T06-{number}0-00-0000{number}{number}aa", text=_TASKS[number + 3], turns=number + 1
        )
    file = made.home / "fleet" / "ringfence.yaml"
    file.parent.mkdir()
    file.write_text(FILE.format(folder=made.project))
    trust_content(file, file.read_bytes())
    rows = _Rows(datetime.now(UTC))
    rows.add_history()
    made.finished = rows.add(
        "nightly-deps", "Fix the failing tests", JobState.SUCCEEDED, _ENDS[0][1], 12, run=run.name
    )
    made.broken = rows.add("docs-keeper", _TASKS[2], JobState.SUCCEEDED, _ENDS[2][1], 30, run=_broken_run())
    made.hostile = rows.add(hostile, hostile, JobState.FAILED, hostile, 8, run=_hostile_run(hostile))
    made.large = rows.add("docs-keeper", "Write all of it", JobState.UNVERIFIED, "done", 70, run=_large_run())
    made.live = rows.add("bug-triage", _TASKS[1], JobState.RUNNING, "", 2, run=LIVE_RUN)
    rows.add("docs-keeper", "Wait for a worker", JobState.QUEUED, "", 1)
    rows.ask("bug-triage", "host", {"host": "api.github.com", "port": 443}, "I need the issue's comments.")
    rows.ask("nightly-deps", "budget", {"limit": "cost_usd", "to": 2.0}, "")
    rows.ask("docs-keeper", "question", {}, hostile)
    rows.texts(made.finished, "Fix the failing tests", "The suite is green: all 18 tests pass.")
    rows.texts(made.hostile, hostile, hostile)
    rows.add_workers()
    _write(made, rows.write)
    return made


def execute(made: Example, statement: Insert | Update | Delete) -> None:
    """Change the database of a fleet."""
    _write(made, lambda connection: connection.execute(statement))


def _write(made: Example, act: Callable[[Connection], object]) -> None:
    database = Database(sqlite_url(made.state, made.home / "fleet" / "ringfence.yaml"))
    database.create_tables()
    with ThreadPoolExecutor(1) as thread:  # the loop of a browser's driver may run in this thread
        thread.submit(anyio.run, database.write, act).result()
    database.close()


async def open_daemon(made: Example) -> Daemon:
    """Open the daemon of the fleet, in which nothing starts jobs, so that they stay as they are."""

    def log(line: str, /, **_fields: object) -> None:
        print(line)

    file = made.home / "fleet" / "ringfence.yaml"
    daemon = Daemon(file, made.state, {}, log)
    await daemon.scheduler.take(daemon.fleet)
    daemon.is_ready = True
    return daemon


@contextmanager
def example_environment(home: Path) -> Iterator[None]:
    """Set the environment of this process to a fleet's own directories."""
    changed = {
        "RINGFENCE_STATE_DIR": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


class _Rows:
    """Rows of the fleet's database."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._random = random.Random(7)
        self._rows: list[tuple[Table, dict[str, Any]]] = []
        self._count = 0

    def add_history(self) -> None:
        """Add jobs that ended in the last hours, and what their agents spent in the last days."""
        for number in range(40):
            state, reason = _ENDS[number % len(_ENDS)]
            self.add(_AGENTS[number % 3], _TASKS[number % 8], state, reason, 45 + 23 * number)
        quarter = int(self._now.timestamp() // 900) * 900_000
        for day in range(30):
            for agent in _AGENTS:
                cost = self._random.random() * (1.4 + _AGENTS.index(agent))
                row = {"agent": agent, "quarter_ms": quarter - day * 86_400_000, "cost_usd": cost}
                self._rows.append((SPEND, {**row, "tokens": int(cost * 400_000)}))

    def add(
        self, agent: str, title: str, state: JobState, reason: str, minutes_ago: float, *, run: str = ""
    ) -> str:
        """Add a job with an attempt; return its id."""
        self._count += 1
        created = self._now - timedelta(minutes=minutes_ago)
        job = f"{created:%Y%m%d-%H%M%S-%f}-{self._count:06x}"
        is_begun = state is not JobState.QUEUED
        started = created + timedelta(seconds=3) if is_begun else None
        ended = (
            min(started + timedelta(seconds=self._random.randint(40, 900)), self._now) if started else None
        )
        if not state.is_terminal:
            ended = None
        tokens = self._random.randint(3_000, 900_000) if is_begun else 0
        used = {"tokens": tokens, "cost_usd": tokens / 500_000}
        times = {"created_ms": _ms(created), "started_ms": _ms(started), "ended_ms": _ms(ended)}
        trigger, name = (("schedule", "nightly"), ("manual", ""), ("after", "follow"))[self._count % 3]
        row = {"id": job, "agent": agent, "title": title[:200], "state": state.value, "reason": reason}
        place = {"worker": "w1", "host": "build-1", "run_id": run or f"2026-11-28T08-00-00-{self._count:08x}"}
        self._rows.append(
            (
                JOBS,
                {
                    **row,
                    **times,
                    **used,
                    **(place if is_begun else dict.fromkeys(place)),
                    "trigger": trigger,
                    "trigger_name": name,
                    "workspace": "/srv/projects/shop",
                    "changed_ms": _ms(ended or started or created),
                    "attempt": int(is_begun),
                    "is_ready_to_apply": bool(run) and state is JobState.SUCCEEDED,
                },
            )
        )
        if started is not None:
            attempt = {"job": job, "number": 1, **place, "reason": reason, **used, "started_ms": _ms(started)}
            end = state.value if ended else None
            self._rows.append((ATTEMPTS, {**attempt, "ended_ms": _ms(ended), "state": end}))
        return job

    def ask(self, agent: str, kind: str, rule: dict[str, Any], text: str) -> None:
        """Add a question of an agent, and its blocked job."""
        job = self.add(
            agent, _TASKS[self._count % 8], JobState.WAITING, "it waits for an answer", 6 + self._count % 7
        )
        row = {"id": f"q{self._count}", "job": job, "agent": agent, "attempt": 1, "run_id": "r", "kind": kind}
        when = {"created_ms": _ms(self._now) - 240_000, "deadline_ms": _ms(self._now) + 80_000_000}
        self._rows.append((INBOX, {**row, **when, "rule": json.dumps(rule), "text": text}))

    def texts(self, job: str, prompt: str, answer: str) -> None:
        """Add the prompt and the answer of a job."""
        for kind, text in (("prompt", prompt), ("answer", answer)):
            self._rows.append(
                (BLOBS, {"job": job, "kind": kind, "content": text.encode("utf-8", "surrogateescape")})
            )

    def add_workers(self) -> None:
        """Add a live worker, a draining one, and a dead one."""
        now = _ms(self._now)
        for number, (host, labels, age_s) in enumerate(
            [("build-1", ["large"], -3600), ("build-2", ["gpu"], -3600), ("build-3", [], 300)], start=1
        ):
            row = {"id": f"w{number}", "host": host, "pid": 4000 + number, "version": "0.2.0", "capacity": 4}
            seen = now - age_s * 1000  # for live workers in the future, since nothing refreshes them
            more = {"labels": json.dumps(labels), "started_ms": now - 86_400_000, "seen_ms": seen}
            self._rows.append((WORKERS, {**row, **more, "is_draining": number == 2}))

    def write(self, connection: Connection) -> None:
        """Write all rows into the database."""
        for table, row in self._rows:
            connection.execute(insert(table).values(**row))


def _ms(moment: datetime | None) -> Any:
    return None if moment is None else int(moment.timestamp() * 1000)


def created(text: str) -> events.JobCreated:
    """The first event of a run."""
    return events.JobCreated(
        job_id=text, session_id="s", prompt=text, model=text, runtime="api", toolset="full", workspace=text,
        version="0.2.0",
    )  # fmt: skip


def _write_run(run: str, *, text: str, turns: int) -> None:
    """Write the record of a run whose texts are all the same."""
    with Journal.create(run_dir(run), run) as journal:
        journal.append(created(text))
        for _ in range(turns):
            journal.append(
                events.ModelReplied(
                    model=text, message_id="m", content=[{"type": "text", "text": text}], stop_reason="tool_use",
                    usage=_USAGE, cost_usd=0.0184, duration_ms=2100, request_digest="",
                )
            )  # fmt: skip
            journal.append(
                events.ToolCalled(call_id="c", tool=text, arguments={"command": text}, reasoning=text)
            )
            journal.append(
                events.ToolReturned(call_id="c", tool=text, is_error=True, content=text, duration_ms=1840)
            )
        journal.append(events.JobEnded(state="failed", exit_code=1, reason=text))
        journal.seal()


def _broken_run() -> str:
    run = "2026-11-28T07-00-00-0000b0b0"
    _write_run(run, text="fine", turns=2)
    file = run_dir(run) / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"fine", b"FINE")
    file.write_bytes(b"".join(lines))
    return run


def _hostile_run(text: str) -> str:
    run = "2026-11-28T07-00-00-0000bad0"
    _write_run(run, text=text, turns=3)
    return run


def _large_run() -> str:
    run = "2026-11-28T07-00-00-0000fa40"
    _write_run(run, text="line", turns=200)
    head = "diff --git a/src/all.py b/src/all.py\n--- a/src/all.py\n+++ b/src/all.py\n@@ -10,2 +10,50003 @@\n first\n"
    lines = "".join(f"+line {number}\n" for number in range(50_001))
    other = (
        "diff --git a/n.md b/n.md\nnew file mode 100644\n--- /dev/null\n+++ b/n.md\n@@ -0,0 +1 @@\n+note\n"
    )
    (run_dir(run) / PATCH_NAME).write_text(f"{other}{head}{lines} last\n")
    return run
