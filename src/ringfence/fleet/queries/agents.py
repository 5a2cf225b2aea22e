"""Reads agents: their configuration, counts of their jobs, and their spend."""

from collections.abc import Iterator, Mapping
from typing import Any

from ringfence.config.document import KeyPath
from ringfence.config.names import nearest
from ringfence.errors import NotFound
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.config.difference import explicit_values
from ringfence.fleet.config.model import (
    AfterTrigger,
    DirectoryTrigger,
    FilesTrigger,
    GithubTrigger,
    Trigger,
    WebhookTrigger,
)
from ringfence.fleet.config.shown_value import shown_value
from ringfence.fleet.queries.counts import FleetCounts
from ringfence.fleet.queries.models import (
    AgentDetail,
    AgentResponse,
    ConfiguredValue,
    ScheduleResponse,
    TriggerSummary,
    job_response,
)
from ringfence.fleet.queries.schedules import list_schedules
from ringfence.fleet.queries.source import FleetSource, StartBlockers
from ringfence.fleet.queries.spend import agent_budget
from ringfence.fleet.store.agents import AgentState, AgentStates
from ringfence.fleet.store.spend import Usage
from ringfence.job.state import JobState


async def list_agents(source: FleetSource) -> list[AgentResponse]:
    """All configured agents in the order of the files; without a configuration, the agents that have jobs.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    counts, blockers = await source.counts(), await source.read_blockers()
    states = await AgentStates(source.database).all()
    schedules = await list_schedules(source)
    names = sorted(counts.states) if source.fleet is None else [*source.fleet.agents]
    return [
        AgentResponse(**_fields(source, name, states.get(name), schedules, counts, blockers))
        for name in names
    ]


async def show_agent(source: FleetSource, name: str) -> AgentDetail:
    """An agent with its configuration.

    Raises:
        NotFound: There is no such agent.
        InfrastructureFault: The database cannot be read.
    """
    counts, blockers = await source.counts(), await source.read_blockers()
    if source.fleet is not None:
        source.fleet.agent(name)
    elif name not in counts.states:
        guess = nearest(name, counts.states)
        hint = f"did you mean {guess!r}?" if guess else "`ringfence fleet agents ls` lists them"
        raise NotFound(f"there is no agent {name!r}; {hint}")
    states = await AgentStates(source.database).all()
    schedules = await list_schedules(source, name)
    return AgentDetail(
        **_fields(source, name, states.get(name), schedules, counts, blockers),
        configuration=[*_configuration(source, name)],
        schedules=schedules,
    )


def _fields(
    source: FleetSource,
    name: str,
    state: AgentState | None,
    schedules: list[ScheduleResponse],
    counts: FleetCounts,
    blockers: StartBlockers,
) -> dict[str, Any]:
    last = counts.last_jobs.get(name)
    due = [each.next_at for each in schedules if each.agent == name and each.next_at is not None]
    agent = None if source.fleet is None else source.fleet.agents.get(name)
    is_enabled = (state is None or state.is_enabled) and (agent is None or agent.settings.is_enabled)
    return {
        **_configured(agent),
        "name": name,
        "is_enabled": is_enabled,
        **_counts(counts.states.get(name, {})),
        "waits_for": blockers.explain_agent(name),
        "last_job": None if last is None else job_response(last, blockers.explain_job(last)),
        "succeeded_today": counts.succeeded_today(name),
        "unverified_today": counts.unverified_today(name),
        "failed_today": counts.failed_today(name),
        "today": agent_budget(source, name, counts.spend.get(name, Usage())),
        "next_at": min(due, default=None),
    }


def _counts(counts: Mapping[JobState, int]) -> dict[str, Any]:
    """Return how many jobs of an agent wait, run and have ended, and how they ended."""
    outcomes = {state: count for state, count in counts.items() if state.is_terminal}
    return {
        "queued": counts.get(JobState.QUEUED, 0),
        "active": counts.get(JobState.STARTING, 0) + counts.get(JobState.RUNNING, 0),
        "ended": sum(outcomes.values()),
        "outcomes": outcomes,
    }


def _configured(agent: Agent | None) -> dict[str, Any]:
    """The fields of an agent that come from its configuration.

    Args:
        agent: The configured agent; None: its configuration is not known.
    """
    if agent is None:
        return {"description": None, "runtime": "", "model": "", "workspace": None, "triggers": []}
    settings = agent.settings
    path: KeyPath = ("workspace",) if settings.repository is None else ("repository", "url")
    place = settings.workspace if settings.repository is None else settings.repository.url
    variables = agent.merged.variables
    return {
        "description": shown_value(("description",), settings.description, variables),
        "runtime": settings.run.runtime,
        "model": settings.run.model,
        "workspace": None if place is None else shown_value(path, str(place), variables),
        "triggers": [
            TriggerSummary(name=name, type=each.type, when=_when(f"{agent.name}/{name}", each))
            for name, each in settings.triggers.items()
        ],
    }


def _when(path: str, trigger: Trigger) -> str:
    """A text for people that says when a trigger creates a job."""
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


def _configuration(source: FleetSource, name: str) -> Iterator[ConfiguredValue]:
    if source.fleet is None:
        return
    prefix = f"agents.{name}."
    for each in explicit_values(source.fleet):
        if each.key.startswith(prefix):
            key = each.key.removeprefix(prefix)
            yield ConfiguredValue(key=key, value=each.shown, origin=str(each.origin))
