"""What every engine promises, whatever it is made on: a set of checks that any can be put to.

Each check is an async function whose docstring is one promise; it is given a `Ground`, which opens engines and starts
executors, and raises `AssertionError` where the promise is broken. Those of `LIFE` find an executor of `workflows` at
work already and may share a ground; those of `DEATH` want one of their own, where nobody is.
"""

from ringfence.testing.engine import death, life
from ringfence.testing.engine.ground import Check, Ground, Worker
from ringfence.testing.engine.workflows import workflows

LIFE: tuple[Check, ...] = life.CHECKS
"""Promises about workflows, while nobody dies."""
DEATH: tuple[Check, ...] = death.CHECKS
"""Promises about executors that come and go."""
PAUSING: frozenset[Check] = frozenset({death.a_stopped_executor_is_fenced})
"""Those that stop a process without killing it; they take as long as it takes to be missed."""

__all__ = ["DEATH", "LIFE", "PAUSING", "Check", "Ground", "Worker", "workflows"]
