"""Routes of agents."""

from typing import Literal

from fastapi import APIRouter

from ringfence.fleet.api.access import ACT, ADMIN, READ
from ringfence.fleet.api.context import Context, FleetData, RunningDaemon
from ringfence.fleet.api.requests import TriggerRequest
from ringfence.fleet.queries.agents import list_agents, show_agent
from ringfence.fleet.queries.jobs import describe_job
from ringfence.fleet.queries.models import AgentDetail, AgentResponse, SubmissionResponse
from ringfence.fleet.submission import JobRequest

router = APIRouter(tags=["agents"])


@router.get("/v1/agents", dependencies=[READ])
async def agents(context: Context) -> list[AgentResponse]:
    """All agents, with their jobs in numbers, their spend of today, and when they are due next."""
    return [] if context.source is None else await list_agents(context.source)


@router.get("/v1/agents/{name}", dependencies=[READ])
async def show(name: str, source: FleetData) -> AgentDetail:
    """One agent, with its configuration in effect and the origin of each value."""
    return await show_agent(source, name)


@router.post("/v1/agents/{name}/jobs", status_code=201, dependencies=[ACT])
async def trigger(
    name: str, wanted: TriggerRequest, daemon: RunningDaemon, source: FleetData
) -> SubmissionResponse:
    """Create a job of an agent."""
    key = f"manual/{wanted.key}" if wanted.key else None
    entered = await daemon.submit(
        JobRequest(
            daemon.fleet.agent(name),
            "manual",
            prompt=wanted.prompt,
            priority=wanted.priority,
            dedupe_key=key,
        )
    )
    assert entered.job is not None
    return SubmissionResponse(job=await describe_job(source, entered.job), is_new=entered.is_new)


@router.post("/v1/agents/{name}/{action}", dependencies=[ADMIN])
async def enable(name: str, action: Literal["enable", "disable"], daemon: RunningDaemon) -> None:
    """Let an agent's jobs start, or have them wait."""
    await daemon.agents.enable(daemon.fleet.agent(name).name, is_enabled=action == "enable")
    daemon.dispatcher.wake()
