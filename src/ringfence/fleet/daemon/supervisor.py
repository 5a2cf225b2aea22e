"""Starts the workers of this machine, restarts them when they die, and stops them."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import Process

from ringfence.errors import InfrastructureFault
from ringfence.fleet.log import Log
from ringfence.process import DEVNULL, PIPE, kill_group, start_process

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_STEADY_S = 30.0
_GRACE_S = 30.0


class Supervisor:
    """Keeps a number of workers running.

    A worker reads its settings from stdin, because other users can read its argument list. When its stdin ends, it
    knows that its daemon is gone.

    Args:
        url: The URL of the database.
        capacity: Jobs that each worker runs at once.
        more: Further settings for each worker.
        log: Logs workers that end.
    """

    def __init__(self, url: str, *, capacity: int, more: Mapping[str, Any], log: Log) -> None:
        self._worker_settings = json.dumps({**more, "url": url, "capacity": capacity}).encode() + b"\n"
        self._log = log
        self._running: dict[int, Process] = {}
        self.restarts = 0
        """How often a worker ended and was started again."""

    @property
    def pids(self) -> list[int]:
        """The process ids of the running workers."""
        return [process.pid for process in self._running.values()]

    async def run(self, count: int) -> None:
        """Keep `count` workers running until cancelled; they have ended when this returns."""
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(self._keep_running, number)

    async def _keep_running(self, number: int) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = anyio.current_time()
            try:
                end = f"ended with code {await self._run_worker(number)}"
            except InfrastructureFault as exc:  # a shortage of processes or memory is temporary
                end = f"could not be started: {exc}"
            if anyio.current_time() - began > _STEADY_S:
                pause_s = _FIRST_PAUSE_S
            self.restarts += 1
            line = f"a worker {end}; another is started in {pause_s:g} s"
            self._log(line, event="worker.ended", pause_s=pause_s)
            await anyio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def _run_worker(self, number: int) -> int:
        """Run one worker to its end. On cancellation, terminate it, and kill it after a grace period."""
        process = await start_process(
            [sys.executable, "-P", "-m", "ringfence", "fleet", "worker", "--told"],
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=None,
        )
        self._running[number] = process
        try:
            assert process.stdin is not None
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # it died at once
                await process.stdin.send(self._worker_settings)
            return await process.wait()
        finally:
            del self._running[number]
            with anyio.CancelScope(shield=True):
                await kill_group(process, grace_s=_GRACE_S)
