"""Stores claims on items of a source before they are made, so that none is lost if the process dies."""

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import find_by_key_in
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import CLAIMS


@dataclass(frozen=True)
class PendingClaim:
    """An item that is about to be claimed."""

    agent: str
    trigger: str
    item: str
    """Its id at the source."""
    token: str
    """The unique name of this claim, distinct also from claims of other fleets."""

    @property
    def key(self) -> str:
        """The dedupe key of the job that the claim becomes."""
        return f"source/{self.agent}/{self.trigger}/{self.token}"


class PendingClaims:
    """The claims in a database that have not become jobs yet."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, pending_claim: PendingClaim) -> None:
        """Store a claim that is about to be made."""

        def act(connection: Connection) -> None:
            values = {
                "agent": pending_claim.agent,
                "trigger": pending_claim.trigger,
                "item": pending_claim.item,
            }
            connection.execute(
                insert(CLAIMS).values(token=pending_claim.token, created_ms=now_ms(), **values)
            )

        await self._database.write(act)

    async def drop(self, pending_claim: PendingClaim) -> None:
        """Remove a claim: it has become a job, or was not made."""
        await self._database.write(
            lambda connection: connection.execute(delete(CLAIMS).where(CLAIMS.c.token == pending_claim.token))
        )

    async def of(self, agent: str, trigger: str) -> list[PendingClaim]:
        """The claims of a trigger whose process died before they became jobs; those that became jobs are removed."""

        def act(connection: Connection) -> list[PendingClaim]:
            mine = (CLAIMS.c.agent == agent, CLAIMS.c.trigger == trigger)
            query = select(CLAIMS.c.item, CLAIMS.c.token).where(*mine).order_by(CLAIMS.c.created_ms)
            found = [PendingClaim(agent, trigger, item, token) for item, token in connection.execute(query)]
            done = [each.token for each in found if find_by_key_in(connection, each.key)]
            connection.execute(delete(CLAIMS).where(CLAIMS.c.token.in_(done)))
            return [each for each in found if each.token not in done]

        return await self._database.write(act)
