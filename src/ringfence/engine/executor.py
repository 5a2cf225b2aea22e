"""Runs workflows in an executor, only while the executor is registered.

DBOS runs in an executor only while there is work. Its threads query the database several times a second, which costs
more than 2 % of a core; an executor without work waits to be woken instead.
"""

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread
import sqlalchemy as sa
from dbos import WorkflowStatus as DbosStatus
from dbos import error as dbos_error

from ringfence.engine import dbos_process
from ringfence.engine.base import Workflow
from ringfence.engine.client import QUEUE, WORKFLOW, Engine, queue_of
from ringfence.engine.executions import Executions
from ringfence.engine.liveness import LockLost
from ringfence.engine.liveness.base import HEARTBEAT_S
from ringfence.errors import InfrastructureFault

_POLL_S = 0.1
"""How often DBOS looks for enqueued workflows while it runs."""
_RELEASE_PAUSE_S = 0.2
"""The delay before a workflow that cannot start here is enqueued again, so that another executor claims it first."""
_IDLE_S = 10.0
"""DBOS is stopped after this time without work."""
_SWEEP = 5
"""All running workflows are checked every this many heartbeats, even without a death: a take-over may have failed."""
_GRACE_S = 30.0
"""How long an interrupted workflow may clean up."""
_TRANSIENT = (sa.exc.DBAPIError, sa.exc.TimeoutError, OSError, InfrastructureFault)
"""Errors of an unreachable database: either it becomes reachable again, or the lock is lost."""


class Executor(Engine):
    """An engine that runs workflows in the caller's event loop. See `ringfence.engine.open_engine`.

    It takes over workflows of dead executors. Leaving the context interrupts its workflows, which other executors then
    resume. A workflow whose executors died too often fails, as does a workflow whose name the executor does not know.
    """

    def __init__(
        self,
        url: str,
        *,
        workflows: Mapping[str, Workflow],
        concurrency: int,
        recoveries: int,
        labels: Sequence[str] = (),
    ) -> None:
        self._name = uuid.uuid4().hex
        super().__init__(url, executor=self._name)
        self._concurrency = concurrency
        self._max_recoveries = recoveries
        self._queues = [QUEUE, *map(queue_of, sorted(set(labels)))]
        self._executions = Executions(workflows, concurrency=concurrency, release_claim=self._release_claim)
        self._tasks = anyio.create_task_group()
        self._switching = anyio.Lock()
        self._is_launched = False
        self._is_leaving = False
        self._next_heartbeat = 0.0
        self._heartbeats = 0
        self._unstarted: frozenset[str] = frozenset()
        self.lost: str | None = None
        """Why this executor has lost its right to run workflows; None while it has it."""
        self._stopped = anyio.Event()

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            dbos_process.claim_process(self._executions.run)
            try:
                await self._call(self._register)
                await self._tasks.__aenter__()
            except BaseException:
                dbos_process.release_process()
                raise
        except BaseException:
            await self._close()
            raise
        self._tasks.start_soon(self._live)
        return self

    def _register(self) -> None:
        self._liveness.register()
        for queue in self._queues:
            self._client.register_queue(
                queue, worker_concurrency=self._concurrency, polling_interval_sec=_POLL_S
            )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        with anyio.CancelScope(shield=True):
            self._is_leaving = True
            self._liveness.interrupt()
            await self._halt()
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            dbos_process.release_process()
            await self._close()

    async def stopped(self) -> str:
        """See `Engine.stopped`."""
        await self._stopped.wait()
        return str(self.lost)

    async def _live(self) -> None:
        is_woken = True
        while True:
            try:
                await self._heartbeat()
                if self._is_leaving:
                    await anyio.sleep(HEARTBEAT_S)
                else:
                    is_woken = await self._work_or_wait(is_woken=is_woken)
            except LockLost as lost:
                with anyio.CancelScope(shield=True):
                    self.lost = str(lost)
                    await self._halt()
                    self._stopped.set()
                return
            except _TRANSIENT:
                await anyio.sleep(HEARTBEAT_S)

    async def _heartbeat(self) -> None:
        """Write a heartbeat if one is due; interrupt workflows that were cancelled or that another executor has."""
        if anyio.current_time() < self._next_heartbeat:
            return
        self._next_heartbeat = anyio.current_time() + HEARTBEAT_S
        running = self._executions.running
        owned = await self._call(self._check, [each.id for each in running])
        for each in running:
            if owned is not None and each.id not in owned:
                each.scope.cancel()

    def _check(self, running: Collection[str]) -> Collection[str] | None:
        """Write a heartbeat and take workflows over; return the ids that this executor holds, or None if not known."""
        if not self._liveness.heartbeat() or self._is_leaving:
            return None
        self._heartbeats += 1
        if self._liveness.remove_dead() or self._heartbeats % _SWEEP == 1:
            self._take_over(running)
        return {one.workflow_id for one in self._pending(executor_id=self._name)} if running else None

    async def _work_or_wait(self, *, is_woken: bool) -> bool:
        """Run DBOS while there is work, otherwise wait; return whether there may be work now."""
        may_be_work = not self._is_launched and (is_woken or self._heartbeats % _SWEEP == 1)
        if may_be_work and await self._call(self._is_work_enqueued):
            await self._launch()
        if not self._is_launched:
            return await self._call(
                self._liveness.wait, max(0.0, self._next_heartbeat - anyio.current_time())
            )
        await anyio.sleep(HEARTBEAT_S)
        if self._executions.idle_s() > _IDLE_S:
            await self._halt()
        return True

    def _is_work_enqueued(self) -> bool:
        enqueued = self._client.list_workflows(
            status="ENQUEUED", name=WORKFLOW, queue_name=self._queues, limit=1, load_input=False
        )
        return bool(enqueued) and not self._executions.is_draining

    async def _launch(self) -> None:
        async with self._switching:
            if self._is_leaving:
                return
            self._executions.open()
            self._is_launched = True
            with self._database.translated_errors():
                dbos_process.launch(self._database, self._name, self._queues)

    async def _halt(self) -> None:
        """Interrupt the workflows, stop DBOS, and enqueue what it had claimed, for others or for the next launch."""
        async with self._switching:
            if not self._is_launched:
                return
            await self._executions.close(grace_s=_GRACE_S)
            await anyio.to_thread.run_sync(dbos_process.destroy)
            dbos_process.restore_threads(asyncio.get_running_loop())
            self._is_launched = False
            if self.lost is None:
                with suppress(*_TRANSIENT):  # other executors take them over as soon as the lock is free
                    await self._call(self._enqueue_again)

    def _enqueue_again(self, ids: Sequence[str] | None = None) -> None:
        """Enqueue workflows of this executor again, by default all. As it has not died, this is no recovery."""
        with self._liveness.take_over_lock():
            for one in self._pending(executor_id=self._name, workflow_ids=ids):
                self._client.resume_workflow(one.workflow_id, queue_name=one.queue_name or QUEUE)
        self._liveness.wake()

    @property
    def is_busy(self) -> bool:
        """Whether workflows run."""
        return bool(self._executions.running)

    def drain(self, *, is_draining: bool) -> None:
        """Stop starting workflows, or start them again. Running workflows continue."""
        self._executions.is_draining = is_draining

    async def _release_claim(self, id: str) -> None:
        """Enqueue a workflow again that this executor has claimed but cannot start, for another executor."""
        await anyio.sleep(_RELEASE_PAUSE_S)
        with suppress(*_TRANSIENT):
            await self._call(partial(self._enqueue_again, [id]))

    def _take_over(self, running: Collection[str]) -> None:
        """Recover workflows of executors that are not registered, and workflows of this executor that never started.

        The latter happens if the database became unreachable between claim and start. A workflow counts as never
        started if two consecutive sweeps see it so.
        """
        pending = self._pending()
        registered = (
            self._liveness.registered()
        )  # read later: an executor is registered before it claims workflows
        unstarted = {one.workflow_id for one in pending if one.executor_id == self._name} - {*running}
        for one in pending:
            if one.executor_id not in registered or one.workflow_id in unstarted & self._unstarted:
                self._recover(one)
        self._unstarted = frozenset(unstarted)

    def _recover(self, seen: DbosStatus) -> None:
        """Enqueue a workflow again, or give it up after too many recoveries, unless another executor was faster."""
        id = seen.workflow_id
        with self._liveness.take_over_lock(), suppress(dbos_error.DBOSNonExistentWorkflowError):
            now = self._pending(workflow_ids=[id])
            if not now or now[0].executor_id != seen.executor_id:
                return
            recoveries = (now[0].attributes or {}).get("recoveries", 0) + 1
            is_poison = recoveries > self._max_recoveries
            error = {"error": f"given up: {recoveries} executors died while they ran it"} if is_poison else {}
            self._client.update_workflow_attributes(id, {"recoveries": recoveries, **error})
            if is_poison:
                self._client.cancel_workflow(id)
            else:
                self._client.resume_workflow(id, queue_name=now[0].queue_name or QUEUE)
        self._liveness.wake()

    def _pending(self, **filters: Any) -> list[DbosStatus]:
        """The workflows that executors have claimed."""
        return self._client.list_workflows(
            status="PENDING", name=WORKFLOW, load_input=False, load_output=False, **filters
        )
