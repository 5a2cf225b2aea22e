"""What this executor runs, and how it is interrupted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import sqlalchemy as sa
from dbos import DBOS

from ringfence.engine.base import Context, Json, StepFailed, Workflow
from ringfence.engine.json_value import plain
from ringfence.engine.liveness import RecoveryCounter
from ringfence.errors import UsageError

_AWAY_S = 0.5


_ERROR_LIMIT = 4000


def text_of(error: Exception) -> str:
    """An exception as it is kept."""
    return f"{type(error).__name__}: {error}"[:_ERROR_LIMIT]


class DbosContext(Context):
    """What one run of a workflow does durably, by DBOS."""

    def __init__(self, id: str) -> None:
        self.id = id

    async def step(self, name: str, function: Callable[..., Awaitable[Json]], *arguments: Any) -> Json:
        """See `Context.step`."""

        async def kept() -> dict[str, Json]:
            try:
                return {"value": plain(await function(*arguments), what=f"the result of step {name!r}")}
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is remembered
                return {"error": text_of(error)}

        done = await DBOS.run_step_async({"name": name}, kept)
        if "error" in done:
            raise StepFailed(done["error"])
        return done["value"]

    async def sleep(self, seconds: float) -> None:
        """See `Context.sleep`."""
        await DBOS.sleep_async(seconds)


class Run:
    """One run of a workflow."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class Running:
    """All runs of this executor.

    Args:
        workflows: What it can run, by name.
        recoveries: Which are given up.
    """

    def __init__(self, workflows: Mapping[str, Workflow], recoveries: RecoveryCounter) -> None:
        self._workflows = workflows
        self._recoveries = recoveries
        self._runs: dict[str, Run] = {}
        self._is_closed = False
        self.begun = anyio.Event()
        """Set as soon as there is a run."""

    @property
    def runs(self) -> list[Run]:
        """All there are."""
        return [*self._runs.values()]

    async def begin(self, id: str, name: str, argument: Json) -> Json:
        """Run a workflow. One that is interrupted leaves no outcome, whatever it does about it."""
        if id in self._runs:  # claimed anew while it was still at it: the older run is nobody's
            await self._interrupt(self._runs[id])
        if self._is_closed:
            raise asyncio.CancelledError
        run = self._runs[id] = Run(id)
        self.begun.set()
        try:
            with run.scope:
                result = await self._result(id, name, argument)
            if run.scope.cancel_called:
                raise asyncio.CancelledError
            return result
        finally:
            run.ended.set()
            if self._runs.get(id) is run:
                del self._runs[id]
            if not self._runs:
                self.begun = anyio.Event()

    async def _result(self, id: str, name: str, argument: Json) -> Json:
        reason = await self._given_up(id)
        if reason is not None:
            raise UsageError(reason)
        if name not in self._workflows:
            raise UsageError(f"there is no workflow {name!r}")
        result = await self._workflows[name](DbosContext(id), argument)
        return plain(result, what=f"the result of workflow {name!r}")

    async def _given_up(self, id: str) -> str | None:
        """Why a workflow is not to be run; waits for a database that is away, since nothing has been done yet."""
        while True:
            try:
                return await anyio.to_thread.run_sync(self._recoveries.given_up, id)
            except (sa.exc.DBAPIError, sa.exc.TimeoutError):
                await anyio.sleep(_AWAY_S)

    async def _interrupt(self, run: Run) -> None:
        run.scope.cancel()
        await run.ended.wait()

    async def close(self, *, grace_s: float) -> None:
        """Begin nothing more, interrupt all, and wait for them to clean up."""
        self._is_closed = True
        with anyio.move_on_after(grace_s):
            async with anyio.create_task_group() as tasks:
                for run in self.runs:
                    tasks.start_soon(self._interrupt, run)
