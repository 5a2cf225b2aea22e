"""Routes of workers: the processes on all machines that run jobs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from sqlalchemy import func, select

from ringfence.fleet.api.access import ADMIN, READ
from ringfence.fleet.api.context import FleetDatabase
from ringfence.fleet.queries.models import WorkerResponse
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.tables import JOBS
from ringfence.fleet.store.workers import Workers, WorkerState
from ringfence.job.state import JobState

router = APIRouter(tags=["workers"])
_Reference = Annotated[
    str,
    Path(
        min_length=1, max_length=100, description="A worker's id or the beginning of it, or a machine's name."
    ),
]


@router.get("/v1/workers", dependencies=[READ])
async def workers(database: FleetDatabase) -> list[WorkerResponse]:
    """All workers, those of one machine together."""
    return await _responses(database, await Workers(database).all())


@router.post("/v1/workers/{reference}/{action}", dependencies=[ADMIN])
async def drain(
    reference: _Reference, action: Literal["drain", "resume"], database: FleetDatabase
) -> list[WorkerResponse]:
    """Let workers take no more jobs, or take jobs again. What they run continues."""
    changed = await Workers(database).drain(reference, is_draining=action == "drain")
    return await _responses(database, changed)


@router.delete("/v1/workers/{reference}", dependencies=[ADMIN])
async def remove(reference: _Reference, database: FleetDatabase) -> list[WorkerResponse]:
    """Remove workers that are dead."""
    return await _responses(database, await Workers(database).remove(reference))


async def _responses(database: Database, found: Sequence[WorkerState]) -> list[WorkerResponse]:
    query = (
        select(JOBS.c.worker, func.count()).where(JOBS.c.state == JobState.RUNNING).group_by(JOBS.c.worker)
    )
    running = await database.read(lambda connection: {row[0]: row[1] for row in connection.execute(query)})
    return [
        WorkerResponse(**asdict(worker), is_alive=worker.is_alive, running=running.get(worker.id, 0))
        for worker in found
    ]
