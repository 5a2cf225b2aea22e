"""`ringfence` in a process that is killed at a point of its work: `python dying.py POINT N WORDS...`.

POINT is `step` (when a run of an agent or of checks after the Nth begins), `write` (just before or after the Nth write
of the loop's rows, by turns), or `over` (1: when the loop's end was written down, 2: before a merge or a pull
request is).
"""

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ringfence.cli import main
from ringfence.job.outcome import RunResult
from ringfence.job.run import JobRun
from ringfence.loop import worker
from ringfence.loop.loop import Loop
from ringfence.loop.runs import Runs
from ringfence.loop.store import LoopStore


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _at_step(most: int) -> None:
    done, begun = Runs.do, 0

    async def do(self: Runs, run: JobRun) -> RunResult:
        nonlocal begun
        begun += 1
        if begun > most:
            _die()
        return await done(self, run)

    Runs.do = do  # type: ignore[method-assign]


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


def _over(when: int) -> None:
    added = LoopStore.add_event

    async def publish(_loop: Loop) -> None:
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
    point, amount = sys.argv[1], int(sys.argv[2])
    sys.argv = ["ringfence", *sys.argv[3:]]
    {"step": _at_step, "write": _at_write, "over": _over}[point](amount)
    main()
