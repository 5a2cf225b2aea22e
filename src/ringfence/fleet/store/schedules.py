"""Stores the last handled due time of each schedule, so that a restart neither repeats nor loses one."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, insert, select, text, update

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds, moment
from ringfence.fleet.store.tables import SCHEDULES

_MARK_HANDLED = text(
    "INSERT INTO fleet_schedules (agent, name, last_slot_ms) VALUES (:of, :called, :due) "
    "ON CONFLICT (agent, name) DO UPDATE SET last_slot_ms = excluded.last_slot_ms"
)


@dataclass(frozen=True)
class ScheduleState:
    """The stored state of a schedule."""

    agent: str
    name: str
    last_due: datetime | None = None
    """The last due time that was handled."""
    is_paused: bool = False


class ScheduleStates:
    """The schedules in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[tuple[str, str], ScheduleState]:
        """The states of all schedules that have one stored, by agent and name."""

        def act(connection: Connection) -> dict[tuple[str, str], ScheduleState]:
            return {
                (row["agent"], row["name"]): ScheduleState(
                    row["agent"],
                    row["name"],
                    moment(row["last_slot_ms"]),
                    bool(row["is_paused"]),
                )
                for row in connection.execute(select(SCHEDULES)).mappings()
            }

        return await self._database.read(act)

    async def mark_handled(self, due_times: Iterable[tuple[str, str, datetime]]) -> None:
        """Store the last due times that were handled: agent, schedule name and due time of each."""
        await self._database.write(lambda connection: mark_handled_in(connection, due_times))

    async def pause(self, agent: str, name: str, *, is_paused: bool) -> None:
        """Pause a schedule, or resume it."""
        await self._database.write(lambda connection: _set(connection, agent, name, is_paused=is_paused))


def mark_handled_in(connection: Connection, due_times: Iterable[tuple[str, str, datetime]]) -> None:
    """As `ScheduleStates.mark_handled`, within a transaction."""
    rows = [
        {"of": agent, "called": name, "due": milliseconds(due_time)} for agent, name, due_time in due_times
    ]
    if rows:
        connection.execute(_MARK_HANDLED, rows)


def _set(connection: Connection, agent: str, name: str, **values: object) -> None:
    mine = (SCHEDULES.c.agent == agent, SCHEDULES.c.name == name)
    done = connection.execute(update(SCHEDULES).where(*mine).values(**values))
    if not done.rowcount:
        connection.execute(insert(SCHEDULES).values(agent=agent, name=name, **values))
