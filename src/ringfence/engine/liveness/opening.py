"""Which liveness a database gets."""

from ringfence.engine.liveness.base import Liveness
from ringfence.engine.liveness.database import Database


def liveness_of(database: Database, executor: str | None, *, queue: str | None = None) -> Liveness:
    """Liveness by the locks of a database.

    Args:
        database: Where.
        executor: Whose; None for an onlooker.
        queue: As `open_engine` has it.
    """
    if database.file is not None:
        from ringfence.engine.liveness.sqlite import SqliteLiveness

        return SqliteLiveness(database, database.file, executor, queue=queue)
    from ringfence.engine.liveness.postgres import PostgresLiveness

    return PostgresLiveness(database, executor, queue=queue)
