"""What the durable engine promises, on SQLite and on Postgres.

Each check is an async function whose docstring is one promise. It gets a `Ground`, which opens engines and starts
executors, and raises `AssertionError` where the promise is broken. The checks of `LIFE` find a running executor of
`workflows` and may share a ground; each check of `DEATH` needs a ground of its own, without an executor.
"""

from tests.engine.conformance import death, life
from tests.engine.conformance.ground import Check, Ground, Worker
from tests.engine.conformance.workflows import workflows

LIFE: tuple[Check, ...] = life.CHECKS
"""Promises about workflows, while nobody dies."""
DEATH: tuple[Check, ...] = death.CHECKS
"""Promises about executors that come and go."""
__all__ = ["DEATH", "LIFE", "Check", "Ground", "Worker", "workflows"]
