"""Stores the rules that people granted: to a job, in a blob of the job, or to an agent for all its later jobs."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, insert, select

from ringfence.errors import NotFound, PolicyRefused
from ringfence.events import JSONObject, QuestionAnswered
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import Job, milliseconds, moment
from ringfence.fleet.store.tables import BLOBS, GRANTS
from ringfence.job.question import LimitRule, Rule, read_rule

_KIND = "grants"
_ID_DIGITS = 10


@dataclass(frozen=True)
class AgentGrant:
    """A rule that holds for all jobs of an agent."""

    agent: str
    kind: str
    rule: JSONObject
    granted_by: str
    granted_at: datetime

    @property
    def id(self) -> str:
        """Names the grant in commands and requests: `g` and ten hexadecimal digits, made from agent and rule."""
        name = f"{self.agent}\0{_stored(self.kind, self.rule)}"
        return f"g{hashlib.sha256(name.encode()).hexdigest()[:_ID_DIGITS]}"

    @property
    def granted(self) -> Rule | None:
        """The rule, checked.

        Raises:
            PolicyRefused: It cannot be granted.
        """
        return read_rule(self.kind, self.rule)


class Grants:
    """The grants in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_agents(self, agent: str | None = None) -> Sequence[AgentGrant]:
        """The rules that were granted to an agent; None: to all agents, ordered by agent."""
        return await self._database.read(lambda connection: _agent_grants(connection, agent))

    async def of_job(self, job: Job) -> tuple[Sequence[QuestionAnswered], Sequence[AgentGrant]]:
        """What holds for a job: the answers to its questions, oldest first, and the rules of its agent."""

        def act(connection: Connection) -> tuple[Sequence[QuestionAnswered], Sequence[AgentGrant]]:
            return _job_grants(connection, job.id), _agent_grants(connection, job.agent)

        return await self._database.read(act)

    async def revoke(self, grant_id: str) -> AgentGrant:
        """Remove a rule that an agent was granted; attempts that have begun keep it.

        Raises:
            NotFound: There is no such grant.
        """

        def act(connection: Connection) -> AgentGrant:
            found = next((each for each in _agent_grants(connection, None) if each.id == grant_id), None)
            if found is None:
                raise NotFound(f"there is no grant {grant_id!r}; `ringfence inbox grants` lists them")
            rule = _stored(found.kind, found.rule)
            connection.execute(delete(GRANTS).where(GRANTS.c.agent == found.agent, GRANTS.c.rule == rule))
            return found

        return await self._database.write(act)


def add_job_grant_in(connection: Connection, job_id: str, answered: QuestionAnswered) -> None:
    """Add an answer to those of a job, within a transaction that has locked the job."""
    known = [*_job_grants(connection, job_id), answered]
    connection.execute(delete(BLOBS).where(BLOBS.c.job == job_id, BLOBS.c.kind == _KIND))
    content = msgspec.json.encode(known)
    connection.execute(insert(BLOBS).values(job=job_id, kind=_KIND, content=content))


def add_agent_grant_in(connection: Connection, agent: str, answered: QuestionAnswered) -> None:
    """Add a rule to those of an agent, within a transaction; a limit replaces the agent's limit of the same name."""
    rule = _stored(answered.kind, answered.rule)
    for known in _agent_grants(connection, agent):
        is_same_limit = known.kind == "budget" and known.rule.get("limit") == answered.rule.get("limit")
        if is_same_limit or _stored(known.kind, known.rule) == rule:
            stored = _stored(known.kind, known.rule)
            connection.execute(delete(GRANTS).where(GRANTS.c.agent == agent, GRANTS.c.rule == stored))
    now = milliseconds(datetime.now(UTC))
    connection.execute(insert(GRANTS).values(agent=agent, rule=rule, granted_by=answered.by, granted_ms=now))


def granted_limits_in(
    connection: Connection, agents: Iterable[AgentGrant], agent: str, job_id: str | None
) -> dict[str, float]:
    """The limits on tokens and cost that were granted to a job or its agent, by name.

    Args:
        connection: The transaction's connection.
        agents: The rules of all agents.
        agent: The job's agent.
        job_id: The job; None if it has asked no question.
    """
    found: dict[str, float] = {}
    known: list[AgentGrant | QuestionAnswered] = [grant for grant in agents if grant.agent == agent]
    known += [] if job_id is None else _job_grants(connection, job_id)
    for each in known:
        try:
            rule = read_rule(each.kind, each.rule)
        except PolicyRefused:
            continue  # the attempt that applies the rule reports it
        if isinstance(rule, LimitRule):
            found[rule.limit] = rule.to
    return found


def agent_grants_in(connection: Connection) -> Sequence[AgentGrant]:
    """The rules of all agents, within a transaction."""
    return _agent_grants(connection, None)


def _agent_grants(connection: Connection, agent: str | None) -> Sequence[AgentGrant]:
    query = select(GRANTS).order_by(GRANTS.c.agent, GRANTS.c.granted_ms)
    if agent is not None:
        query = query.where(GRANTS.c.agent == agent)
    grants = []
    for row in connection.execute(query).mappings():
        stored: Mapping[str, Any] = json.loads(row["rule"])
        granted_at = moment(row["granted_ms"])
        assert granted_at is not None
        grants.append(AgentGrant(row["agent"], stored["kind"], stored["rule"], row["granted_by"], granted_at))
    return grants


def _job_grants(connection: Connection, job_id: str) -> list[QuestionAnswered]:
    query = select(BLOBS.c.content).where(BLOBS.c.job == job_id, BLOBS.c.kind == _KIND)
    content = connection.execute(query).scalar()
    return [] if content is None else msgspec.json.decode(content, type=list[QuestionAnswered])


def _stored(kind: str, rule: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, "rule": rule}, sort_keys=True)
