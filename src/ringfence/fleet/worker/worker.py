"""A worker: an executor of the engine that runs jobs until it is told to stop."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence import __version__
from ringfence.engine import open_engine
from ringfence.errors import InfrastructureFault, RingfenceError
from ringfence.fleet.log import Log
from ringfence.fleet.record_store import RecordStore
from ringfence.fleet.store.attempts import Attempts
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.jobs import Jobs
from ringfence.fleet.store.workers import REFRESH_S, Workers
from ringfence.fleet.worker.job_executor import JobExecutor
from ringfence.fleet.worker.job_workspace import JobWorkspaces, clones_dir
from ringfence.fleet.worker.record_upload import RecordUpload
from ringfence.fleet.worker.workflow import JOB_WORKFLOW, JobWorkflow
from ringfence.job.interrupted_runs import recover_runs

if TYPE_CHECKING:
    from ringfence.fleet.tracing.traces import Traces

_LAST_TRACES_S = 6.0
_LEAVE_S = 5.0
_RECOVERIES = 100
"""More than any job's tries: those are counted by the job, and end it with a reason."""


class Worker:
    """Runs jobs of one database, in this process.

    Args:
        url: Of the database.
        state: The state directory.
        slots: Jobs at once.
        log: Is told what a person should know of a job.
        say: Is told what a person should know besides.
        traces: Where traces of jobs go.
        labels: What `placement` of agents can ask for; the machine's name besides.
        records: Address of the fleet's record store; None: records stay on this machine.
    """

    def __init__(
        self,
        url: str,
        *,
        state: Path,
        slots: int,
        log: Log,
        say: Callable[[str], None],
        traces: "Traces | None" = None,
        labels: Sequence[str] = (),
        records: str | None = None,
    ) -> None:
        self._labels = tuple(sorted(set(labels)))
        self._slots = slots
        self._say = say
        self._traces = traces
        # Patient: what has been done must not be lost for a moment's fault.
        self._database = Database(url, is_patient=True)
        host = self._host = socket.gethostname()
        self._workers = Workers(self._database)
        self._uploads: RecordUpload | None = None
        if records is not None:
            store = RecordStore(records, state / "fleet" / "records")
            self._uploads = RecordUpload(self._database, store, host=host, log=log)
        performing = JobExecutor(
            self._database,
            JobWorkspaces(clones_dir(state)),
            host=host,
            log=log,
            traces=traces,
            on_ended=lambda: self._uploads.wake() if self._uploads is not None else None,
        )
        self._workflow = JobWorkflow(
            Jobs(self._database), Attempts(self._database), performing, worker=self._name, host=host
        )
        self._engine = open_engine(
            url,
            workflows={JOB_WORKFLOW: self._workflow},
            concurrency=slots,
            recoveries=_RECOVERIES,
            labels=(*self._labels, host),
        )
        self._stopping = anyio.Event()

    def stop(self) -> None:
        """End, and leave what runs to others: there it begins again, and none of its tries is lost."""
        self._stopping.set()

    async def run(self) -> None:
        """Run jobs until told to stop.

        Raises:
            InfrastructureFault: The database cannot be reached, at the start or for too long; or this worker was silent
                for so long that others have taken over its jobs.
        """
        lost: list[str] = []
        async with self._engine, anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, lost)
            tasks.start_soon(self._clean_up)
            tasks.start_soon(self._stay_registered)
            if self._uploads is not None:
                tasks.start_soon(self._uploads.run)
            await self._stopping.wait()
            tasks.cancel_scope.cancel()
        with suppress(RingfenceError), anyio.move_on_after(_LEAVE_S):
            await self._workers.leave(self._name())
        self._database.close()
        if self._traces is not None:
            with anyio.move_on_after(_LAST_TRACES_S):
                await anyio.to_thread.run_sync(self._traces.close, abandon_on_cancel=True)
        if lost:
            raise InfrastructureFault(f"this worker has lost its right to run jobs: {lost[0]}; start another")

    async def _clean_up(self) -> None:
        """Close what workers that died on this machine left, also of jobs that nobody takes up again."""
        try:
            await recover_runs(self._say)
        except RingfenceError as exc:
            self._say(f"what dead workers left could not be cleared away: {exc}")

    async def _stay_registered(self) -> None:
        """Register, and refresh the row for as long as this worker runs."""
        await self._workers.register(
            self._name(),
            host=self._host,
            pid=os.getpid(),
            version=__version__,
            labels=self._labels,
            capacity=self._slots,
        )
        while True:
            await anyio.sleep(REFRESH_S)
            may_work = await self._workers.refresh(self._name())
            self._engine.drain(is_draining=not may_work)

    async def _watch(self, lost: list[str]) -> None:
        """Stop, as soon as the engine has: what is told to an engine that has stopped is done by nobody."""
        lost.append(await self._engine.stopped())
        self._stopping.set()

    def _name(self) -> str:
        return self._engine.executor or ""
