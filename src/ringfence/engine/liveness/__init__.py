"""Who lives: each executor holds a lock that dies with it, and the others try it."""

from ringfence.engine.liveness.base import Liveness, LockLost
from ringfence.engine.liveness.database import Database, Recoveries
from ringfence.engine.liveness.opening import liveness_of

__all__ = ["Database", "Liveness", "LockLost", "Recoveries", "liveness_of"]
