"""How often each workflow was taken over from an executor that died."""

from collections.abc import Sequence

import sqlalchemy as sa

from ringfence.engine.liveness.database import RECOVERIES, Database

_COUNT = sa.text(
    "INSERT INTO ringfence_recoveries (workflow_id, count) VALUES (:id, 1) ON CONFLICT (workflow_id) "
    "DO UPDATE SET count = ringfence_recoveries.count + 1 RETURNING count"
)


class Recoveries:
    """The counts in a database.

    Args:
        database: Which.
        limit: A workflow that is taken over more often is given up.
    """

    def __init__(self, database: Database, *, limit: int) -> None:
        self._engine = database.engine
        self._limit = limit

    def count(self, workflow_id: str) -> None:
        """Count one, and give the workflow up if it was one too many."""
        with self._engine.begin() as connection:
            counted = connection.execute(_COUNT, {"id": workflow_id}).scalar_one()
            if counted > self._limit:
                reason = f"given up: {counted} executors died while they ran it"
                mine = RECOVERIES.c.workflow_id == workflow_id
                connection.execute(sa.update(RECOVERIES).where(mine).values(given_up=reason))

    def given_up(self, workflow_id: str) -> str | None:
        """Why it is not to be run again; None if it is."""
        query = sa.select(RECOVERIES.c.given_up).where(RECOVERIES.c.workflow_id == workflow_id)
        with self._engine.connect() as connection:
            return connection.execute(query).scalar()

    def forget(self, workflow_ids: Sequence[str]) -> None:
        """Remove the counts of workflows that are no more."""
        with self._engine.begin() as connection:
            connection.execute(sa.delete(RECOVERIES).where(RECOVERIES.c.workflow_id.in_(workflow_ids)))
