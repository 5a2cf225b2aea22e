"""How often Python looks for unreachable objects."""

import subprocess
import sys

_PROGRAM = """
import gc
from ringfence.cli import look_rarely

usual = gc.get_threshold()
look_rarely()
rarely = gc.get_threshold()
held = [[] for _ in range(rarely[0] + 1)]
print(rarely[0] > 100 * usual[0], gc.get_threshold() == usual, gc.callbacks)
"""


def test_it_looks_as_usual_once_the_imports_are_over():
    """A run that takes days keeps no heaps of what nobody can reach."""
    told = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["True", "True", "[]"]
