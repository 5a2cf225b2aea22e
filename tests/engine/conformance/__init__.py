"""Conformance checks of the durable engine: promises that hold on SQLite and on Postgres.

Each check is an async function whose docstring states one promise. It receives a `Ground`, which opens engines and
starts executors, and raises `AssertionError` if the promise is broken. The checks of `LIFE` need a running executor of
`workflows` and may share a ground; each check of `DEATH` needs a ground of its own, without an executor.
"""

from tests.engine.conformance import death, life
from tests.engine.conformance.ground import Check, Ground, Worker
from tests.engine.conformance.workflows import workflows

LIFE: tuple[Check, ...] = life.CHECKS
"""Promises about workflows while all executors live."""
DEATH: tuple[Check, ...] = death.CHECKS
"""Promises about executors that start, leave and die."""
__all__ = ["DEATH", "LIFE", "Check", "Ground", "Worker", "workflows"]
