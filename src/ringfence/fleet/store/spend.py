"""Stores the spend of agents as running sums: a row per agent and quarter hour, updated as attempts report usage."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    and_,
    case,
    cast,
    func,
    insert,
    literal,
    select,
    text,
)

from ringfence.fleet.store.job import ACTIVE, milliseconds
from ringfence.fleet.store.tables import ATTEMPTS, JOBS, SPEND

_QUARTER_MS = 15 * 60 * 1000
_ADD = text(
    "INSERT INTO fleet_spend (agent, quarter_ms, tokens, cost_usd) VALUES (:agent, :quarter, :tokens, :cost) "
    "ON CONFLICT (agent, quarter_ms) DO UPDATE SET tokens = fleet_spend.tokens + excluded.tokens, "
    "cost_usd = fleet_spend.cost_usd + excluded.cost_usd"
)


@dataclass(frozen=True)
class Usage:
    """Tokens, including cached ones, and their cost as far as it is known."""

    tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.tokens + other.tokens, self.cost_usd + other.cost_usd)


def add_spend_in(connection: Connection, agent: str, usage: Usage, *, at_ms: int) -> None:
    """Add usage to an agent's sums, within the transaction that stores it with the attempt.

    Args:
        connection: The transaction's connection.
        agent: The agent.
        usage: The usage since the last call for the attempt.
        at_ms: The time of the call.
    """
    if usage != Usage():
        quarter = at_ms - at_ms % _QUARTER_MS
        row = {"agent": agent, "quarter": quarter, "tokens": usage.tokens, "cost": usage.cost_usd}
        connection.execute(_ADD, row)


def spend_since_in(connection: Connection, since: datetime) -> dict[str, Usage]:
    """What each agent spent since a time, which must be the start of a quarter hour."""
    query = (
        select(SPEND.c.agent, func.sum(SPEND.c.tokens), func.sum(SPEND.c.cost_usd))
        .where(SPEND.c.quarter_ms >= milliseconds(since))
        .group_by(SPEND.c.agent)
    )
    return {agent: Usage(int(tokens), float(cost)) for agent, tokens, cost in connection.execute(query)}


def reserved_in(connection: Connection) -> dict[str, Usage]:
    """What is reserved for each agent's active jobs and not yet used by their current attempts."""

    def unused(reserved: Column[Any], used: Column[Any]) -> ColumnElement[Any]:
        rest = reserved - func.coalesce(used, 0)
        return func.sum(case((rest > 0, rest), else_=0))

    is_present = and_(
        ATTEMPTS.c.job == JOBS.c.id, ATTEMPTS.c.number == JOBS.c.attempt, ATTEMPTS.c.ended_ms.is_(None)
    )
    query = (
        select(
            JOBS.c.agent,
            unused(JOBS.c.reserved_tokens, ATTEMPTS.c.tokens),
            unused(JOBS.c.reserved_usd, ATTEMPTS.c.cost_usd),
        )
        .select_from(JOBS.outerjoin(ATTEMPTS, is_present))
        .where(JOBS.c.state.in_([state.value for state in ACTIVE]))
        .group_by(JOBS.c.agent)
    )
    return {agent: Usage(int(tokens), float(cost)) for agent, tokens, cost in connection.execute(query)}


def spend_by_day_in(
    connection: Connection, days: Mapping[str, datetime], *, until: datetime
) -> dict[tuple[str, str], Usage]:
    """What each agent spent on each of several consecutive days, by day and agent.

    Args:
        connection: The transaction's connection.
        days: The start of each day by its name, oldest first.
        until: The end of the last day.
    """
    starts = [*days.values(), until]
    found: dict[tuple[str, str], Usage] = {}
    for name, start, end in zip(days, starts, starts[1:], strict=False):
        query = (
            select(SPEND.c.agent, func.sum(SPEND.c.tokens), func.sum(SPEND.c.cost_usd))
            .where(SPEND.c.quarter_ms >= milliseconds(start), SPEND.c.quarter_ms < milliseconds(end))
            .group_by(SPEND.c.agent)
        )
        for agent, tokens, cost in connection.execute(query):
            found[name, agent] = Usage(int(tokens), float(cost))
    return found


def remove_spend_before_in(connection: Connection, before: datetime) -> None:
    """Remove the sums of quarter hours that began before a time."""
    connection.execute(SPEND.delete().where(SPEND.c.quarter_ms < milliseconds(before)))


def fill_spend_in(connection: Connection) -> None:
    """Compute the sums from the attempts, for a database without sums; each attempt counts at its start."""
    quarter = (cast(ATTEMPTS.c.started_ms / literal(_QUARTER_MS), BigInteger) * _QUARTER_MS).label("quarter")
    if connection.dialect.name == "postgresql":
        quarter = (func.div(ATTEMPTS.c.started_ms, _QUARTER_MS) * _QUARTER_MS).label("quarter")
    sums = (
        select(JOBS.c.agent, quarter, func.sum(ATTEMPTS.c.tokens), func.sum(ATTEMPTS.c.cost_usd))
        .join(JOBS, JOBS.c.id == ATTEMPTS.c.job)
        .where((ATTEMPTS.c.tokens > 0) | (ATTEMPTS.c.cost_usd > 0))
        .group_by(JOBS.c.agent, quarter)
    )
    connection.execute(insert(SPEND).from_select(["agent", "quarter_ms", "tokens", "cost_usd"], sums))
