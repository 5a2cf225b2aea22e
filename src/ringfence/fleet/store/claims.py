"""Claims on work of others that are about to be made: noted before, so that none is lost with the process."""

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from ringfence.fleet.store.database import Database
from ringfence.fleet.store.insertion import with_key_in
from ringfence.fleet.store.jobs import now_ms
from ringfence.fleet.store.tables import CLAIMS


@dataclass(frozen=True)
class PendingClaim:
    """An item that is to be claimed."""

    agent: str
    trigger: str
    item: str
    """Its id at the source."""
    token: str
    """What tells this claim from all others, also from those of other fleets."""

    @property
    def key(self) -> str:
        """Of the job that comes of it."""
        return f"source/{self.agent}/{self.trigger}/{self.token}"


class PendingClaims:
    """The claims in a database that have not become jobs yet."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, pending_claim: PendingClaim) -> None:
        """Note one."""

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
        """Forget one: it has become a job, or came to nothing."""
        await self._database.write(
            lambda connection: connection.execute(delete(CLAIMS).where(CLAIMS.c.token == pending_claim.token))
        )

    async def of(self, agent: str, trigger: str) -> list[PendingClaim]:
        """Those of one trigger that somebody died over; those that have become jobs are forgotten here."""

        def act(connection: Connection) -> list[PendingClaim]:
            mine = (CLAIMS.c.agent == agent, CLAIMS.c.trigger == trigger)
            query = select(CLAIMS.c.item, CLAIMS.c.token).where(*mine).order_by(CLAIMS.c.created_ms)
            found = [PendingClaim(agent, trigger, item, token) for item, token in connection.execute(query)]
            done = [each.token for each in found if with_key_in(connection, each.key)]
            connection.execute(delete(CLAIMS).where(CLAIMS.c.token.in_(done)))
            return [each for each in found if each.token not in done]

        return await self._database.write(act)
