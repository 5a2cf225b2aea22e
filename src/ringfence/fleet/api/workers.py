"""Routes of workers: the processes on all machines that run jobs."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path

from ringfence.fleet.api.access import ADMIN, READ
from ringfence.fleet.api.context import FleetDatabase
from ringfence.fleet.queries.models import WorkerResponse
from ringfence.fleet.queries.workers import describe_workers
from ringfence.fleet.store.workers import Workers

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
    return await describe_workers(database, await Workers(database).all())


@router.post("/v1/workers/{reference}/{action}", dependencies=[ADMIN])
async def drain(
    reference: _Reference, action: Literal["drain", "resume"], database: FleetDatabase
) -> list[WorkerResponse]:
    """Let workers take no more jobs, or take jobs again. What they run continues."""
    changed = await Workers(database).drain(reference, is_draining=action == "drain")
    return await describe_workers(database, changed)


@router.delete("/v1/workers/{reference}", dependencies=[ADMIN])
async def remove(reference: _Reference, database: FleetDatabase) -> list[WorkerResponse]:
    """Remove workers that are dead."""
    return await describe_workers(database, await Workers(database).remove(reference))
