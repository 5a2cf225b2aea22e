"""Routes of agents."""

from typing import Literal

from fastapi import APIRouter

from ringfence.fleet.api.access import ACT, ADMIN, READ
from ringfence.fleet.api.context import RunningDaemon
from ringfence.fleet.api.models import (
    AgentAnswer,
    EnteredAnswer,
    TriggerAnswer,
    TriggerRequest,
    counts_of_agent,
)
from ringfence.fleet.api.waiting import answer_job, why_disabled
from ringfence.fleet.config.model import (
    AfterTrigger,
    DirectoryTrigger,
    FilesTrigger,
    GithubTrigger,
    Trigger,
    WebhookTrigger,
)
from ringfence.fleet.daemon.daemon import Daemon
from ringfence.fleet.submission import JobRequest
from ringfence.job.state import JobState

router = APIRouter(tags=["agents"])


@router.get("/v1/agents", dependencies=[READ])
async def agents(daemon: RunningDaemon) -> list[AgentAnswer]:
    """All agents, and their state."""
    counts, states = await daemon.jobs.counts(), await daemon.agents.all()
    return [
        _agent(daemon, name, counts.get(name, {}), is_enabled=name not in states or states[name].is_enabled)
        for name in daemon.fleet.agents
    ]


@router.post("/v1/agents/{name}/jobs", status_code=201, dependencies=[ACT])
async def trigger(name: str, wanted: TriggerRequest, daemon: RunningDaemon) -> EnteredAnswer:
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
    return EnteredAnswer(job=answer_job(daemon, entered.job), is_new=entered.is_new)


@router.post("/v1/agents/{name}/{action}", dependencies=[ADMIN])
async def enable(name: str, action: Literal["enable", "disable"], daemon: RunningDaemon) -> None:
    """Let an agent's jobs start, or have them wait."""
    await daemon.agents.enable(daemon.fleet.agent(name).name, is_enabled=action == "enable")
    daemon.dispatcher.wake()


def _agent(daemon: Daemon, name: str, counts: dict[JobState, int], *, is_enabled: bool) -> AgentAnswer:
    settings = daemon.fleet.agents[name].settings
    return AgentAnswer(
        name=name,
        description=settings.description,
        runtime=settings.run.runtime,
        model=settings.run.model,
        workspace=str(settings.workspace)
        if settings.workspace
        else settings.repository and settings.repository.url,
        is_enabled=settings.is_enabled and is_enabled,
        **counts_of_agent(counts),
        waits_for=why_disabled(daemon, name) or daemon.dispatcher.waiting.get(name),
        triggers=[
            TriggerAnswer(name=trigger_name, type=each.type, when=_when(f"{name}/{trigger_name}", each))
            for trigger_name, each in settings.triggers.items()
        ],
    )


def _when(path: str, trigger: Trigger) -> str:
    """When a trigger creates a job, for people."""
    match trigger:
        case WebhookTrigger():
            return f"a request to /hooks/{path}"
        case FilesTrigger():
            return f"a change of {', '.join(trigger.paths)}"
        case AfterTrigger():
            return f"a job of {trigger.agent} ends as {', '.join(trigger.states)}"
        case DirectoryTrigger():
            return f"a task file in {trigger.path}"
        case GithubTrigger():
            return f"an issue of {trigger.repository} with the label {trigger.label}"
