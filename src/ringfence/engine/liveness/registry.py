"""Which liveness a database gets."""

from ringfence.engine.liveness.base import Liveness
from ringfence.engine.liveness.database import Database


def liveness_of(database: Database, executor: str | None) -> Liveness:
    """Liveness by the locks of a database.

    Args:
        database: Where.
        executor: Whose; None for an onlooker.
    """
    if database.file is not None:
        from ringfence.engine.liveness.sqlite import SqliteLiveness

        return SqliteLiveness(database, database.file, executor)
    from ringfence.engine.liveness.postgres import PostgresLiveness

    return PostgresLiveness(database, executor)
