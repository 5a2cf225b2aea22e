"""The workers of this machine: started, restarted when they die, and stopped."""

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
    """Keeps so many workers running.

    A worker is told by its stdin what to work on, as its argument list can be read by others; the end of its stdin is
    how it learns that its daemon is gone.

    Args:
        url: Of the database.
        slots: Jobs at once, of each worker.
        more: What else each is told.
        log: Is told of deaths.
    """

    def __init__(self, url: str, *, slots: int, more: Mapping[str, Any], log: Log) -> None:
        self._worker_settings = json.dumps({**more, "url": url, "slots": slots}).encode() + b"\n"
        self._log = log
        self._running: dict[int, Process] = {}
        self.restarts = 0
        """How often one ended and was started again."""

    @property
    def pids(self) -> list[int]:
        """Of those that run."""
        return [process.pid for process in self._running.values()]

    async def run(self, count: int) -> None:
        """Keep `count` workers running until cancelled; they are gone when this returns."""
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(self._keep, number)

    async def _keep(self, number: int) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = anyio.current_time()
            try:
                how = f"ended with code {await self._one(number)}"
            except InfrastructureFault as exc:  # no more processes, no memory: that passes
                how = f"could not be started: {exc}"
            pause_s = (
                _FIRST_PAUSE_S
                if anyio.current_time() - began > _STEADY_S
                else min(_LONGEST_PAUSE_S, pause_s * 2)
            )
            self.restarts += 1
            line = f"a worker {how}; another is started in {pause_s:g} s"
            self._log(line, event="worker.ended", pause_s=pause_s)
            await anyio.sleep(pause_s)

    async def _one(self, number: int) -> int:
        """Run one worker to its end; it is told to stop, and then made to, if we are cancelled."""
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
