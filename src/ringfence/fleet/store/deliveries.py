"""Webhook deliveries that created jobs, kept for longer than the jobs: a request that is sent again creates no other."""

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.job import milliseconds
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import DELIVERIES

KEPT = timedelta(days=400)
"""How long a delivery is known, whatever retention keeps of its job."""


def find_delivery_in(connection: Connection, key: str) -> str | None:
    """The job that a delivery created, whether or not it was removed since; None if the delivery is new."""
    found: str | None = connection.execute(select(DELIVERIES.c.job).where(DELIVERIES.c.key == key)).scalar()
    return found


def add_delivery_in(connection: Connection, key: str, job_id: str) -> None:
    """Note a delivery, within the transaction that creates its job."""
    connection.execute(insert(DELIVERIES).values(key=key, job=job_id, received_ms=now_ms()))


async def remove_old_deliveries(database: Database, now: datetime) -> int:
    """Remove the deliveries that are older than `KEPT`; returns how many.

    Raises:
        InfrastructureFault: The database cannot be reached.
    """
    before = milliseconds(now - KEPT)

    def act(connection: Connection) -> int:
        return connection.execute(delete(DELIVERIES).where(DELIVERIES.c.received_ms < before)).rowcount

    return await database.write(act)
