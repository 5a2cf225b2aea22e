"""Reads the spend of agents and compares it with their budgets."""

from datetime import UTC, datetime, timedelta

from ringfence.fleet.config.model import BudgetSettings
from ringfence.fleet.queries.models import BudgetUsage, DailySpend, SpendReport
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.store.spend import Usage, spend_by_day_in

MAX_DAYS = 366


async def report_spend(source: FleetSource, days: int = 14) -> SpendReport:
    """What agents spent on each of the last days, including today.

    Args:
        source: The fleet.
        days: The number of days, 1 to `MAX_DAYS`.

    Raises:
        InfrastructureFault: The database cannot be read.
    """
    today = source.start_of_day()
    # A day on which the clocks change has 23 or 25 hours; each day begins at local midnight.
    starts = {
        day.isoformat(): datetime(day.year, day.month, day.day, tzinfo=source.timezone)
        for day in (today.date() - timedelta(days=back) for back in reversed(range(days)))
    }
    until = datetime.now(UTC) + timedelta(days=1)
    found = await source.database.read(lambda connection: spend_by_day_in(connection, starts, until=until))
    spend = (await source.counts()).spend
    return SpendReport(
        timezone=str(source.timezone),
        days=[start.date() for start in starts.values()],
        spend=[
            DailySpend(
                day=starts[day].date(), agent=agent, tokens=usage.tokens, cost_usd=round(usage.cost_usd, 6)
            )
            for (day, agent), usage in sorted(found.items())
        ],
        total=fleet_budget(source, sum(spend.values(), Usage())),
        budgets={
            name: _budget(spend.get(name, Usage()), agent.settings.budget)
            for name, agent in (source.fleet.agents.items() if source.fleet is not None else ())
        },
    )


def fleet_budget(source: FleetSource, spent: Usage) -> BudgetUsage:
    """What all agents spent of the fleet's budget today."""
    return _budget(spent, source.fleet.settings.budget if source.fleet is not None else BudgetSettings())


def agent_budget(source: FleetSource, name: str, spent: Usage) -> BudgetUsage:
    """What an agent spent of its budget today."""
    agent = source.fleet.agents.get(name) if source.fleet is not None else None
    return _budget(spent, agent.settings.budget if agent is not None else BudgetSettings())


def _budget(spent: Usage, budget: BudgetSettings) -> BudgetUsage:
    return BudgetUsage(
        tokens=spent.tokens,
        cost_usd=round(spent.cost_usd, 6),
        max_tokens=budget.tokens,
        max_cost_usd=budget.cost_usd,
    )
