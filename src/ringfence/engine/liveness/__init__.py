"""Who lives: each executor holds a lock that dies with it, and the others try it."""

from ringfence.engine.liveness.base import Liveness, LockLost
from ringfence.engine.liveness.database import Database, RecoveryCounter
from ringfence.engine.liveness.registry import liveness_of

__all__ = ["Database", "Liveness", "LockLost", "RecoveryCounter", "liveness_of"]
