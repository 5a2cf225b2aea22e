"""Stores the state of agents: whether they are enabled, and their last sessions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, insert, select, update

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds, moment
from ringfence.fleet.store.tables import AGENTS

_ALL = select(AGENTS)
_ONE = _ALL.where(AGENTS.c.name == bindparam("of"))


@dataclass(frozen=True)
class AgentState:
    """The stored state of an agent."""

    name: str
    is_enabled: bool = True
    session_run_id: str | None = None
    """The run whose session the agent's next job can resume."""
    session_host: str | None = None
    """The machine that has the session."""
    session_used_at: datetime | None = None


@dataclass(frozen=True)
class LastSession:
    """The session that an agent used last."""

    run_id: str | None
    """The run that has it; None if no later job can resume it."""
    host: str
    """The machine that has it."""
    used_at: datetime


class AgentStates:
    """The agents in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, name: str) -> AgentState:
        """The state of an agent; the defaults if none is stored."""
        found = await self._read(_ONE, {"of": name})
        return found.get(name, AgentState(name))

    async def all(self) -> dict[str, AgentState]:
        """The states of all agents that have one stored, by name."""
        return await self._read(_ALL, {})

    async def _read(self, query: Select[Any], asked: Mapping[str, str]) -> dict[str, AgentState]:
        def act(connection: Connection) -> dict[str, AgentState]:
            return {
                row["name"]: AgentState(
                    row["name"],
                    bool(row["is_enabled"]),
                    row["session_run_id"],
                    row["session_host"],
                    moment(row["session_used_ms"]),
                )
                for row in connection.execute(query, asked).mappings()
            }

        return await self._database.read(act)

    async def enable(self, name: str, *, is_enabled: bool) -> None:
        """Enable or disable an agent: the jobs of a disabled agent stay in the queue."""
        await self._database.write(lambda connection: _set_in(connection, name, {"is_enabled": is_enabled}))


def set_last_session_in(connection: Connection, name: str, session: LastSession) -> None:
    """Store the session that an agent used last, within a transaction."""
    used = {"session_host": session.host, "session_used_ms": milliseconds(session.used_at)}
    _set_in(connection, name, {"session_run_id": session.run_id, **used})


def _set_in(connection: Connection, name: str, values: Mapping[str, object]) -> None:
    done = connection.execute(update(AGENTS).where(AGENTS.c.name == name).values(**values))
    if not done.rowcount:
        connection.execute(insert(AGENTS).values(name=name, **values))
