"""Imports in a thread, and commands that end before they are over."""

import subprocess
import sys
from pathlib import Path

COMMAND = """
import atexit, sys
sys.path.insert(0, sys.argv[1])
from ringfence.background_import import import_in_background
from ringfence.cli.ending import end_by

atexit.register(print, "finalized")
thread = import_in_background("module_of_this_test")
if sys.argv[2] == "joined":
    thread.join()
print("output")
end_by(lambda: 75)
"""


def end(folder: Path, module: str, how: str) -> tuple[int, list[str]]:
    """Exit code and output of a command that imports `module` in the background."""
    (folder / "module_of_this_test.py").write_text(module, encoding="utf-8")
    command = [sys.executable, "-c", COMMAND, str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.split()


def test_a_command_ends_during_an_import(tmp_path: Path):
    """A command that ends while a module is being imported keeps its exit code: the interpreter is not finalized."""
    assert end(tmp_path, "import time; time.sleep(3600)", "at once") == (75, ["output"])


def test_a_command_ends_after_an_import(tmp_path: Path):
    """A command that ends when nothing is being imported any more is finalized as usual."""
    assert end(tmp_path, "", "joined") == (75, ["output", "finalized"])
