"""Reads workers with the jobs that they run."""

from collections.abc import Sequence
from dataclasses import asdict

from sqlalchemy import func, select

from ringfence.fleet.queries.models import WorkerResponse
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import JOBS
from ringfence.fleet.store.workers import WorkerState
from ringfence.job.state import JobState


async def describe_workers(database: Database, found: Sequence[WorkerState]) -> list[WorkerResponse]:
    """Describe workers, each with the number of its running jobs.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    query = (
        select(JOBS.c.worker, func.count()).where(JOBS.c.state == JobState.RUNNING).group_by(JOBS.c.worker)
    )
    running = await database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})
    return [
        WorkerResponse(**asdict(worker), is_alive=worker.is_alive, running=running.get(worker.id, 0))
        for worker in found
    ]
