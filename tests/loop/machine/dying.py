"""`ringfence` in a process that is killed at a point of its work: `python dying.py POINT N WORDS...`.

POINT is `step` (when a run of an agent or of checks after the Nth begins), `write` (just before or after the Nth write
of the loop's rows, by turns), `over` (1: when the loop's end was written down, 2: before a merge or a pull request
is), or `boundary` (after the first write that no earlier process died after; N is the file that lists those writes).
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.cli import main
from ringfence.job.outcome import RunResult
from ringfence.job.run import JobRun
from ringfence.loop import worker
from ringfence.loop.loop import Loop
from ringfence.loop.publish import Attest
from ringfence.loop.runs import Runs
from ringfence.loop.store import LoopStore


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at_step(most: int) -> None:
    done, begun = Runs.execute, 0

    async def execute(self: Runs, run: JobRun) -> RunResult:
        nonlocal begun
        begun += 1
        if begun > most:
            _die()
        return await done(self, run)

    Runs.execute = execute  # type: ignore[method-assign]


def _at_write(number: int) -> None:
    written, count = LoopStore.execute, 0

    def execute(self: LoopStore, statement: str, values: Sequence[Any] = ()) -> None:
        nonlocal count
        count += 1
        if count == number and number % 2:
            _die()
        written(self, statement, values)
        if count == number:
            _die()

    LoopStore.execute = execute  # type: ignore[method-assign]


def _at_boundary(file: Path) -> None:
    written = LoopStore.execute
    passed, last = set(file.read_text().splitlines()) if file.exists() else set(), ""

    def execute(self: LoopStore, statement: str, values: Sequence[Any] = ()) -> None:
        nonlocal last
        written(self, statement, values)
        last = f"COMMIT of {last}" if statement == "COMMIT" else _write_of(statement, values)
        if last not in passed:
            with file.open("a") as log:
                log.write(f"{last}\n")
            _die()

    LoopStore.execute = execute  # type: ignore[method-assign]


def _write_of(statement: str, values: Sequence[Any]) -> str:
    """Names a write by its statement and the row: without run ids and moments, which differ in each process."""
    names = [str(value) for value in values if isinstance(value, str)]
    if statement.startswith("UPDATE"):
        names = [str(value) for value in values[-statement.partition(" WHERE ")[2].count("?") :]]
    elif "INTO loop_events" in statement:
        names = names[1:2]  # the key
    else:
        names = names[:3]  # loop, story, name
    return " ".join([*statement.split(), *names])


def _over(when: int) -> None:
    added = LoopStore.add_event

    async def publish(_loop: Loop, _attest: Attest) -> None:
        _die()

    def add_event(self: LoopStore, key: str, kind: str, **data: Any) -> None:
        if kind in ("loop.merged", "loop.proposed"):
            _die()
        added(self, key, kind, **data)

    if when == 1:
        worker.publish = publish  # type: ignore[attr-defined, assignment]
    else:
        LoopStore.add_event = add_event  # type: ignore[method-assign]


if __name__ == "__main__":
    point, amount = sys.argv[1:3]
    sys.argv = ["ringfence", *sys.argv[3:]]
    if point == "boundary":
        _at_boundary(Path(amount))
    else:
        {"step": _at_step, "write": _at_write, "over": _over}[point](int(amount))
    main()
