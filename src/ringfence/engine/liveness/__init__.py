"""Which executors live: each holds a lock that ends with its process, and the others try to take it."""

from ringfence.engine.liveness.base import Liveness, LockLost
from ringfence.engine.liveness.database import Database

__all__ = ["Database", "Liveness", "LockLost", "open_liveness"]


def open_liveness(database: Database, executor: str | None) -> Liveness:
    """Liveness by the locks of a database, of an executor or, without a name, of an observer."""
    if database.file is not None:
        from ringfence.engine.liveness.sqlite import SqliteLiveness

        return SqliteLiveness(database, executor, database.file)
    from ringfence.engine.liveness.postgres import PostgresLiveness

    return PostgresLiveness(database, executor)
