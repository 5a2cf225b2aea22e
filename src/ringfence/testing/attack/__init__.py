"""The escape suite: attacks on the fence's promises, run by our tests and by `ringfence doctor --attack`."""

from ringfence.testing.attack.attack import Attack, AttackResult, OpenSandbox, Scene, Verdict
from ringfence.testing.attack.run import ATTACKS, open_beside, run_attacks

__all__ = [
    "ATTACKS",
    "Attack",
    "AttackResult",
    "OpenSandbox",
    "Scene",
    "Verdict",
    "open_beside",
    "run_attacks",
]
