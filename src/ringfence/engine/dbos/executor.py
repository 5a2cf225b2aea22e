"""An executor's life: it is known before it runs anything, and runs nothing once it is not."""

import asyncio
from collections.abc import Collection, Mapping

import anyio
import sqlalchemy as sa
from dbos import WorkflowStatus

from ringfence.engine.base import Workflow
from ringfence.engine.dbos import launch
from ringfence.engine.dbos.control import Control
from ringfence.engine.dbos.runs import Running
from ringfence.engine.liveness import Database, Liveness, LockLost, RecoveryCounter
from ringfence.engine.liveness.base import BEAT_S
from ringfence.errors import InfrastructureFault

_WATCH_S = 0.25
_SWEEP_BEATS = 5
"""Every so many beats all that runs is looked through, even if nobody has died: a take-over may have been cut short."""
_GRACE_S = 30.0
"""What is interrupted has so long to clean up."""
_PASSING = (sa.exc.DBAPIError, sa.exc.TimeoutError, OSError, InfrastructureFault)
"""The database is out of reach: it comes back, or the lock is lost."""


class Recovery:
    """Take-over by one executor: what dead executors ran goes back to the queue. All calls block.

    Args:
        control: The workflows.
        liveness: Who lives.
        recoveries: Where take-overs are counted.
        executor: Who does it.
    """

    def __init__(
        self, control: Control, liveness: Liveness, recoveries: RecoveryCounter, executor: str
    ) -> None:
        self._control = control
        self._liveness = liveness
        self._recoveries = recoveries
        self._executor = executor
        self._idle: frozenset[str] = frozenset()

    def take_over(self, running: Collection[str]) -> None:
        """Put back what is with executors that nobody knows any longer, and what this one has but never began.

        The latter happens where the database was lost between the claim and the start: seen twice in a row, it is so.

        Args:
            running: What this executor runs.
        """
        pending = self._control.pending()
        known = self._liveness.known()  # later than the workflows: an executor is known before it takes any
        idle = {one.workflow_id for one in pending if one.executor_id == self._executor} - {*running}
        for one in pending:
            if one.executor_id not in known or one.workflow_id in idle & self._idle:
                self._put_back(one)
        self._idle = frozenset(idle)

    def _put_back(self, seen: WorkflowStatus) -> None:
        """In turn with all others, and after another look: what is put back would run again even if it was cancelled."""
        with self._liveness.turn():
            now = self._control.running([seen.workflow_id])
            if now.get(seen.workflow_id, self) == seen.executor_id:
                self._recoveries.count(seen.workflow_id)
                self._control.put_back(seen.workflow_id)

    def hand_over(self) -> None:
        """Put back what this executor has, because it leaves: that is nobody's death, and not counted."""
        try:
            with self._liveness.turn():
                for one in self._control.pending(executor=self._executor):
                    self._control.put_back(one.workflow_id)
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, InfrastructureFault):
            return  # others take it over as soon as our lock is gone


class Executor:
    """Of one executor.

    Args:
        database: Where.
        control: The workflows there.
        liveness: Its own.
        recoveries: Where take-overs are counted.
        executor: Its name.
        workflows: What it runs.
    """

    def __init__(
        self,
        database: Database,
        control: Control,
        liveness: Liveness,
        *,
        recoveries: RecoveryCounter,
        executor: str,
        workflows: Mapping[str, Workflow],
    ) -> None:
        self._database = database
        self._control = control
        self._liveness = liveness
        self._executor = executor
        self._running = Running(workflows, recoveries)
        self._recovery = Recovery(control, liveness, recoveries, executor)
        self._threads = anyio.CapacityLimiter(4)
        self._tasks = anyio.create_task_group()
        self._beats = 0
        self._is_leaving = False
        self._ceasing = anyio.Lock()
        self._has_ceased = False
        self.lost: str | None = None
        """Why it has lost the right to run anything."""
        self.stopped = anyio.Event()

    async def start(self, *, concurrency: int) -> None:
        """Be known, take what waits, and watch over the others."""
        launch.claim(self._running.begin)
        try:
            await anyio.to_thread.run_sync(self._liveness.register, limiter=self._threads)
            await anyio.to_thread.run_sync(
                lambda: self._control.make_queue(concurrency=concurrency), limiter=self._threads
            )
            launch.launch(self._database, self._executor)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._end()
            raise
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._live)
        self._tasks.start_soon(self._watch)

    async def stop(self) -> None:
        """Interrupt what runs, and leave it to others."""
        with anyio.CancelScope(shield=True):
            self._is_leaving = True
            if self.lost is None:
                await self._cease()
                await anyio.to_thread.run_sync(self._recovery.hand_over)
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._end()

    async def _cease(self) -> None:
        """Run nothing any more; once, though it may lose its right to run while it leaves."""
        async with self._ceasing:
            if self._has_ceased:
                return
            await self._running.close(grace_s=_GRACE_S)
            await anyio.to_thread.run_sync(launch.destroy)
            launch.restore(asyncio.get_running_loop())
            self._has_ceased = True

    async def _end(self) -> None:
        await anyio.to_thread.run_sync(launch.destroy)
        await anyio.to_thread.run_sync(self._liveness.leave)
        launch.release()

    async def _live(self) -> None:
        while True:
            try:
                await anyio.to_thread.run_sync(self._beat, limiter=self._threads)
            except LockLost as lost:
                with anyio.CancelScope(shield=True):
                    self.lost = str(lost)
                    await self._cease()
                    self.stopped.set()
                return
            except _PASSING:
                pass
            await anyio.sleep(BEAT_S)

    def _beat(self) -> None:
        if not self._liveness.beat() or self._is_leaving:
            return
        self._beats += 1
        if self._liveness.reap() or self._beats % _SWEEP_BEATS == 1:
            self._recovery.take_over([run.id for run in self._running.runs])

    async def _watch(self) -> None:
        """Interrupt what is cancelled, or with another by now. Nothing is asked while nothing runs."""
        while True:
            await self._running.begun.wait()
            await anyio.sleep(_WATCH_S)
            runs = self._running.runs
            try:
                has = await anyio.to_thread.run_sync(
                    self._control.running, [run.id for run in runs], limiter=self._threads
                )
            except _PASSING:
                continue
            for run in runs:
                if has.get(run.id) != self._executor:
                    run.scope.cancel()
