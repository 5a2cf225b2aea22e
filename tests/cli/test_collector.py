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


_ENDING = """
import atexit, gc
from ringfence.cli.ending import end_by
atexit.register(lambda: print(gc.get_freeze_count() > 1000))
end_by(lambda: 3)
"""


def test_it_looks_through_nothing_when_a_command_ends():
    """What the process has loaded goes with it; to look through it takes half a second."""
    told = subprocess.run([sys.executable, "-c", _ENDING], capture_output=True, text=True, check=False)
    assert (told.stdout, told.returncode) == ("True\n", 3)


_LOADING = """
import gc
from ringfence.collector import loading
looked = []
gc.callbacks.append(lambda phase, info: looked.append(phase))
with loading():
    held = [[] for _ in range(100_000)]
print(looked, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


def test_it_never_looks_through_what_was_loaded():
    """Neither meanwhile nor later."""
    told = subprocess.run([sys.executable, "-c", _LOADING], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["[]", "True", "True"]
