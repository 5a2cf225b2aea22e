"""Routes of schedules."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ringfence.errors import NotFound
from ringfence.fleet.api.access import ACT, ADMIN, READ
from ringfence.fleet.api.context import Context, FleetData, RunningDaemon
from ringfence.fleet.queries.jobs import describe_job
from ringfence.fleet.queries.models import ScheduleResponse, SubmissionResponse
from ringfence.fleet.queries.schedules import list_schedules
from ringfence.fleet.submission import JobRequest

router = APIRouter(tags=["schedules"])


@router.get("/v1/schedules", dependencies=[READ])
async def schedules(context: Context) -> list[ScheduleResponse]:
    """All schedules, and when each is due next."""
    return [] if context.source is None else await list_schedules(context.source)


@router.get("/v1/schedules/{agent}/{name}/next", dependencies=[READ])
async def next_times(
    agent: str, name: str, daemon: RunningDaemon, count: Annotated[int, Query(ge=1, le=1000)] = 5
) -> list[datetime]:
    """When a schedule is due next, paused or not."""
    return daemon.scheduler.next_times(f"{agent}/{name}", count)


@router.post("/v1/schedules/{agent}/{name}/run", status_code=201, dependencies=[ACT])
async def run(agent: str, name: str, daemon: RunningDaemon, source: FleetData) -> SubmissionResponse:
    """Create the job of a schedule now; when it is due next does not change."""
    settings = daemon.fleet.agent(agent).settings.schedules.get(name)
    if settings is None:
        raise _unknown(agent, name)
    entered = await daemon.submit(
        JobRequest(
            daemon.fleet.agent(agent),
            "schedule",
            name=name,
            prompt=settings.prompt,
            priority=settings.priority,
        )
    )
    assert entered.job is not None
    return SubmissionResponse(job=await describe_job(source, entered.job), is_new=True)


@router.post("/v1/schedules/{agent}/{name}/{action}", dependencies=[ADMIN])
async def pause(agent: str, name: str, action: Literal["pause", "resume"], daemon: RunningDaemon) -> None:
    """Pause a schedule, or resume it from now on."""
    if not await daemon.scheduler.pause(f"{agent}/{name}", is_paused=action == "pause"):
        raise _unknown(agent, name)


def _unknown(agent: str, name: str) -> NotFound:
    return NotFound(f"agent {agent!r} has no schedule {name!r}; `ringfence fleet schedules ls` lists them")
