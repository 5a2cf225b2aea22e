"""Runs a worker: an executor of the durable engine that executes jobs until it is stopped."""

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
_LAST_RECORDS_S = 20.0
"""How long a worker that stops may upload records: on a machine that ends with it, they would be lost."""
_LEAVE_S = 5.0
_IDLE_POLL_S = 0.5
_RECOVERIES = 100
"""More than any job's attempts: the job counts those itself, and ends with a reason when they are used up."""


class Worker:
    """Runs jobs of one database, in this process.

    Args:
        url: The URL of the database.
        state: The state directory.
        capacity: The number of jobs at once.
        log: Reports what a person should know about a job.
        say: Reports everything else that a person should know.
        traces: Exports traces of jobs.
        labels: The labels that the `placement` of agents can ask for, in addition to the machine's name.
        records: The address of the fleet's record store; None: records stay on this machine.
        on_registered: Called with the worker's id once the fleet knows it and it takes jobs.
        heartbeat: A file whose time is set to now each time the fleet knows this worker, for supervisors of processes.
    """

    def __init__(
        self,
        url: str,
        *,
        state: Path,
        capacity: int,
        log: Log,
        say: Callable[[str], None],
        traces: "Traces | None" = None,
        labels: Sequence[str] = (),
        records: str | None = None,
        on_registered: Callable[[str], None] | None = None,
        heartbeat: Path | None = None,
    ) -> None:
        self._on_registered = on_registered
        self._heartbeat = heartbeat
        self._labels = tuple(sorted(set(labels)))
        self._capacity = capacity
        self._say = say
        self._traces = traces
        # Patient: a short outage of the database must not lose work that is done.
        self._database = Database(url, is_patient=True)
        host = self._host = socket.gethostname()
        self._workers = Workers(self._database)
        self._uploads: RecordUpload | None = None
        if records is not None:
            store = RecordStore(records, state / "fleet" / "records")
            self._uploads = RecordUpload(self._database, store, host=host, log=log)
        job_executor = JobExecutor(
            self._database,
            JobWorkspaces(clones_dir(state)),
            host=host,
            log=log,
            traces=traces,
            on_ended=lambda: self._uploads.wake() if self._uploads is not None else None,
        )
        self._workflow = JobWorkflow(
            Jobs(self._database),
            Attempts(self._database),
            job_executor,
            worker=self._name,
            host=host,
            on_not_begun=lambda: self._refresh_wanted.set(),
        )
        self._refresh_wanted = anyio.Event()
        self._engine = open_engine(
            url,
            workflows={JOB_WORKFLOW: self._workflow},
            concurrency=capacity,
            recoveries=_RECOVERIES,
            labels=(*self._labels, host),
        )
        self._stopping = anyio.Event()
        self._is_leaving = False

    async def drain(self, limit_s: float) -> None:
        """Take no more jobs, and stop when those that run have ended, or after `limit_s` seconds."""
        self._is_leaving = True
        self._engine.drain(is_draining=True)
        with anyio.move_on_after(limit_s):
            with suppress(
                RingfenceError
            ):  # the fleet's list of workers is for people; jobs do not depend on it
                await self._workers.drain(self._name(), is_draining=True)
            while self._engine.is_busy:  # noqa: ASYNC110 -- an execution may begin and end between two events
                await anyio.sleep(_IDLE_POLL_S)
        self.stop()

    def stop(self) -> None:
        """Stop, and leave running jobs to other workers, which start them again; no attempt is counted for it."""
        self._stopping.set()

    async def run(self) -> None:
        """Run jobs until `stop` is called.

        Raises:
            InfrastructureFault: The database cannot be reached at the start, or for too long; or this worker was silent
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
        if self._heartbeat is not None:
            self._heartbeat.unlink(missing_ok=True)
        if self._uploads is not None:
            with suppress(RingfenceError), anyio.move_on_after(_LAST_RECORDS_S):
                await self._uploads.sweep_all()
        with suppress(RingfenceError), anyio.move_on_after(_LEAVE_S):
            await self._workers.leave(self._name())
        self._database.close()
        if self._traces is not None:
            with anyio.move_on_after(_LAST_TRACES_S):
                await anyio.to_thread.run_sync(self._traces.close, abandon_on_cancel=True)
        if lost:
            raise InfrastructureFault(f"this worker has lost its right to run jobs: {lost[0]}; start another")

    async def _clean_up(self) -> None:
        """Close the runs that dead workers left on this machine, including those of jobs that are not retried."""
        try:
            await recover_runs(self._say)
        except RingfenceError as exc:
            self._say(f"the runs of dead workers could not be cleaned up: {exc}")

    async def _register(self) -> None:
        await self._workers.register(
            self._name(),
            host=self._host,
            pid=os.getpid(),
            version=__version__,
            labels=self._labels,
            capacity=self._capacity,
        )

    async def _stay_registered(self) -> None:
        """Register, and refresh the row for as long as this worker runs; register again if the row was removed."""
        await self._register()
        if self._on_registered is not None:
            self._on_registered(self._name())
        while True:
            if self._heartbeat is not None:
                self._heartbeat.touch()
            with anyio.move_on_after(REFRESH_S):
                await self._refresh_wanted.wait()
            self._refresh_wanted = anyio.Event()
            may_work = await self._workers.refresh(self._name())
            if may_work is None:  # it was taken for dead, for example while its machine slept
                await self._register()
            self._engine.drain(is_draining=self._is_leaving or may_work is False)

    async def _watch(self, lost: list[str]) -> None:
        """Stop as soon as the engine has stopped: it executes no further work."""
        lost.append(await self._engine.stopped())
        self._stopping.set()

    def _name(self) -> str:
        return self._engine.executor or ""
