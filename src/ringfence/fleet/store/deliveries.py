"""Stores the webhook deliveries that created jobs, longer than the jobs, so that a replayed request creates none."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import DELIVERIES

KEPT = timedelta(days=400)
"""How long a delivery is kept, regardless of the retention of its job."""


def find_delivery_in(connection: Connection, key: str) -> str | None:
    """The id of the job that a delivery created, even if the job was removed since; None if the delivery is new."""
    found: str | None = connection.execute(select(DELIVERIES.c.job).where(DELIVERIES.c.key == key)).scalar()
    return found


def add_delivery_in(connection: Connection, key: str, job_id: str) -> None:
    """Store a delivery, within the transaction that creates its job."""
    connection.execute(insert(DELIVERIES).values(key=key, job=job_id, received_ms=now_ms()))


async def remove_old_deliveries(database: Database, now: datetime) -> int:
    """Remove the deliveries that are older than `KEPT`; return how many.

    Raises:
        InfrastructureFault: The database cannot be reached.
    """
    before = milliseconds(now - KEPT)

    def act(connection: Connection) -> int:
        return connection.execute(delete(DELIVERIES).where(DELIVERIES.c.received_ms < before)).rowcount

    return await database.write(act)
