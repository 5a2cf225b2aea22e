"""Converts the configured limits of concurrency, rate and spend into the values that admission enforces."""

from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.store.admission import AgentBounds, Bounds, Budget, Rate


def limits_of(fleet: Fleet) -> Bounds:
    """The limits of concurrency, rate and spend that the configuration sets."""
    settings = fleet.settings
    return Bounds(
        agents={
            name: _agent_bounds(agent) for name, agent in fleet.agents.items() if agent.settings.is_enabled
        },
        concurrency=settings.concurrency,
        day=Budget(settings.budget.tokens, settings.budget.cost_usd),
        needs_workers=True,
    )


def _agent_bounds(agent: Agent) -> AgentBounds:
    settings = agent.settings
    rate = settings.rate
    return AgentBounds(
        concurrency=settings.concurrency,
        rate=None if rate is None else Rate(rate.count, rate.per),
        job=Budget(settings.limits.tokens, settings.limits.cost_usd),
        day=Budget(settings.budget.tokens, settings.budget.cost_usd),
    )
