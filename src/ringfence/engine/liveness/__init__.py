"""Determines which executors are alive: each holds a lock that ends with its process, and the others try to take it."""

from ringfence.engine.liveness.base import Liveness, LockLost
from ringfence.engine.liveness.database import Database

__all__ = ["Database", "Liveness", "LockLost", "open_liveness"]


def open_liveness(database: Database, executor: str | None) -> Liveness:
    """The liveness of an executor, or of an observer if there is no name, by the locks of a database."""
    if database.file is not None:
        from ringfence.engine.liveness.sqlite import SqliteLiveness

        return SqliteLiveness(database, executor, database.file)
    from ringfence.engine.liveness.postgres import PostgresLiveness

    return PostgresLiveness(database, executor)
