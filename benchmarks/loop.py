"""What ringfence itself takes of a loop: scripted roles that answer at once, tests that check next to nothing.

python -m benchmarks loop
"""

import json
import os
import signal
import sqlite3
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.loop.machine.project import COMMAND, Project, parts_of, story_of

from benchmarks.claim import Row, p50_p99

_STORIES = 10
_RESUMED = 5
_STARTED = 5
_ROLES = ("tests.", "code.", "review.", "judgement.")


def measure() -> list[Row]:
    """All of it."""
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as folder:
        project = _project(Path(folder) / "whole")
        done = project.start("--json")
        if done.returncode:
            raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])
        rows = [_per_story(project), _start(Path(folder)), _steps(project)]
        return [*rows, _resumed(Path(folder) / "killed")]


def _project(root: Path, *, stories: int = _STORIES) -> Project:
    names = [f"piece{number}" for number in range(stories)]
    return Project.make(
        root, [story_of(name) for name in names], [part for name in names for part in parts_of(name)]
    )


def _ask(project: Project, query: str) -> list[Any]:
    (file,) = (project.root / "state" / "loops").glob("*/loop.db")
    with sqlite3.connect(file) as database:
        return database.execute(query).fetchall()


def _per_story(project: Project) -> Row:
    told = _ask(
        project, "SELECT type, at_ms FROM loop_events WHERE type IN ('story.dispatched', 'story.passed')"
    )
    begun = [at for kind, at in told if kind == "story.dispatched"]
    passed = [at for kind, at in told if kind == "story.passed"]
    took = [(end - start) / 1000 for start, end in zip(begun, passed, strict=True)]
    bare = _suite_alone(project)
    return Row(
        "a loop's story: tests, code, review, judgement, 2 gates, 2 commits, merge",
        "≤ 1.5 s",
        p50_p99(took, "s"),
        f"6 runs with a record each; the suite alone, run twice: {2 * bare:.2f} s",
        statistics.median(took) <= 1.5,
    )


def _suite_alone(project: Project) -> float:
    began = time.monotonic()
    subprocess.run(
        ["python3", "-m", "unittest", "discover"], cwd=project.work, capture_output=True, check=False
    )
    return time.monotonic() - began


def _start(folder: Path) -> Row:
    """Loops that start, each a process of its own."""
    times: list[tuple[float, float]] = []
    for number in range(_STARTED):
        project = _project(folder / f"start-{number}", stories=1)
        began = time.time() * 1000
        _start_loop(project)
        times.append(_first_request_s(project, began))
    first = statistics.median(took for took, _ in times)
    return Row(
        "`loop start` to the first role's request: the loop's repository, the suite on the base",
        "≤ 1 s",
        f"median {first:.2f} s",
        f"{len(times)} new processes; of it the project's own suite on the base: "
        f"{statistics.median(suite for _, suite in times):.2f} s; bubblewrap, which needs no pool",
        first <= 1.0,
    )


def _start_loop(project: Project) -> None:
    """Work a loop in a process that imports all that it needs by itself."""
    done = subprocess.run(
        [*COMMAND, *project.starting], cwd=project.work, env=project.environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])


def _first_request_s(project: Project, began_ms: float) -> tuple[float, float]:
    """Until the first role's request, and what of it the project's own suite took."""
    (first_turn,), *_ = _ask(
        project, "SELECT run_id FROM loop_steps WHERE role != '' ORDER BY began_ms LIMIT 1"
    )
    (base,), *_ = _ask(
        project, "SELECT run_id FROM loop_steps WHERE name LIKE 'base.%' ORDER BY began_ms LIMIT 1"
    )
    asked = next(line for line in _journal(project, first_turn) if line["event"] == "model.asked")
    suite_s = sum(
        line["data"]["duration_ms"] / 1000
        for line in _journal(project, base)
        if line["event"] == "command.ended"
    )
    return (_moment(asked["time"]) - began_ms) / 1000, suite_s


def _journal(project: Project, run: str) -> list[dict[str, Any]]:
    text = (project.root / "state" / "runs" / run / "journal.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def _moment(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp() * 1000


def _steps(project: Project) -> Row:
    """Each command of a role, as its record has it, and the same on the host, by whoever starts it the quickest."""
    inside: list[float] = []
    alone: list[float] = []
    for (run,) in _ask(project, "SELECT run_id FROM loop_steps WHERE role != ''"):
        lines = _journal(project, run)
        commands = [line["data"]["arguments"]["command"] for line in lines if line["event"] == "tool.called"]
        returned = [line["data"]["duration_ms"] for line in lines if line["event"] == "tool.returned"]
        assert len(commands) == len(returned), (run, commands, returned)
        inside += returned
        alone += [_alone_ms(project.root / "alone", command) for command in commands]
    added = statistics.median(inside) - statistics.median(alone)
    return Row(
        "a command of a role in its sandbox, from the call to its result",
        "≤ 5 ms beyond the command",
        f"adds {added:.1f} ms",
        f"{len(inside)} commands (`cat > FILE` by a shell): {p50_p99(inside)}; on the host {p50_p99(alone)}",
        added <= 5,
    )


def _alone_ms(folder: Path, command: str) -> float:
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    (folder / "pieces").mkdir(exist_ok=True)
    began = time.perf_counter()
    subprocess.run(
        ["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    return (time.perf_counter() - began) * 1e3


def _resumed(root: Path) -> Row:
    times = []
    for number in range(_RESUMED):
        project = _project(root / str(number))
        words = ["loop", "start", "--prd", str(project.prd), "--model", f"scripted:{project.script}"]
        with subprocess.Popen(
            [*COMMAND, *words], cwd=project.work, env=project.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            _until(lambda project=project, most=8 + number: len(_known(project)) > most)
            os.kill(process.pid, signal.SIGKILL)
        before, began = _known(project), time.monotonic()
        with subprocess.Popen(
            [*COMMAND, "loop", "resume"], cwd=project.work, env=project.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        ) as process:  # fmt: skip
            _until(lambda project=project, before=before: _known(project) != before)
            times.append(time.monotonic() - began)
            process.kill()
    return Row(
        "`loop resume` after kill -9, until the next step is done or another begun",
        "≤ 2 s",
        f"{p50_p99(times, 's')}",
        f"{_RESUMED} loops, interpreter and imports included",
        max(times) <= 2.0,
    )


def _known(project: Project) -> list[Any]:
    try:
        return _ask(project, "SELECT story, name, tries, ended_ms FROM loop_steps ORDER BY 1, 2")
    except (ValueError, sqlite3.Error):
        return []


def _until(is_so: Any) -> None:
    end = time.monotonic() + 120
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)
