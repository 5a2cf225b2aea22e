"""Routes of schedules."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from ringfence.errors import UsageError
from ringfence.fleet.api.access import ADMIN, READ
from ringfence.fleet.api.context import RunningDaemon
from ringfence.fleet.api.models import ScheduleAnswer

router = APIRouter(tags=["schedules"])


@router.get("/v1/schedules", dependencies=[READ])
async def schedules(daemon: RunningDaemon) -> list[ScheduleAnswer]:
    """All schedules, and when each is due next."""
    return [
        ScheduleAnswer(agent=each.agent.name, name=each.name, when=each.schedule.describe(), next_at=next_at)
        for each, next_at in daemon.scheduling.all()
    ]


@router.get("/v1/schedules/{agent}/{name}/next", dependencies=[READ])
async def next_times(
    agent: str, name: str, daemon: RunningDaemon, count: Annotated[int, Query(ge=1, le=1000)] = 5
) -> list[datetime]:
    """When a schedule is due next."""
    return daemon.scheduling.next_times(f"{agent}/{name}", count)


@router.post("/v1/schedules/{agent}/{name}/{action}", dependencies=[ADMIN])
async def pause(agent: str, name: str, action: Literal["pause", "resume"], daemon: RunningDaemon) -> None:
    """Pause a schedule, or resume it from now on."""
    if not await daemon.scheduling.pause(f"{agent}/{name}", is_paused=action == "pause"):
        raise UsageError(
            f"agent {agent!r} has no schedule {name!r}; `ringfence fleet schedules ls` lists them"
        )
