"""What the real runners take for tests is known as a test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.check.protected_files import Conventions

PYTHON = [
    "test_a.py",
    "a_test.py",
    "test.py",
    "tests.py",
    "testing.py",
    "atest.py",
    "latest.py",
    "Test_b.py",
    "test_c.txt",
]
NODE = [
    "a.test.js",
    "a.spec.js",
    "a-test.cjs",
    "a_test.mjs",
    "test-a.js",
    "test.mjs",
    "latest.js",
    "b.tests.js",
    "testa.js",
]
FOLDERS = ["", "tests", "test", "lib"]
PASSES = {
    ".py": "import unittest\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        print('RAN', __file__)\n",
    ".txt": ">>> 1\n1\n",
    ".js": "console.error('RAN', __filename)\n",
    ".cjs": "console.error('RAN', __filename)\n",
    ".mjs": "console.error('RAN', import.meta.filename ?? import.meta.url)\n",
}


def grow(top: Path, names: list[str]) -> list[str]:
    """Write each name in each folder; where they are."""
    made = [f"{folder}/{name}".lstrip("/") for folder in FOLDERS for name in names]
    for path in made:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(PASSES[Path(path).suffix])
    return made


def ran(top: Path, made: list[str], *command: str) -> set[str]:
    """Which of the files a runner names."""
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "NODE", "PYTHON"))
    }
    clean["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(
        command,
        cwd=top,
        env=clean,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    words = {word.removeprefix(f"{top}/").split("::")[0] for word in re.split(r"[\s'\"()]+", done.stdout)}
    found = words & set(made)
    assert found, done.stdout
    return found


def test_what_pytest_collects(tmp_path: Path):
    """Each file of which pytest makes tests by itself."""
    made = grow(tmp_path, PYTHON)
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")
    found = ran(tmp_path, made, sys.executable, "-m", "pytest", *options)
    assert {path for path in found if not Conventions(frozenset({"pytest"})).is_test(path)} == set()
    assert {"test_a.py", "lib/a_test.py", "test_c.txt"} <= found


def test_what_unittest_discovers(tmp_path: Path):
    """Each file that its discovery loads."""
    made = grow(tmp_path, [name for name in PYTHON if name.endswith(".py")])
    found = ran(tmp_path, made, sys.executable, "-m", "unittest", "discover")
    assert {path for path in found if not Conventions(frozenset({"unittest"})).is_test(path)} == set()
    assert {"testing.py", "tests.py"} <= found


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.slow
def test_what_node_runs(tmp_path: Path):
    """Each file that `node --test` runs when it is told of none."""
    made = grow(tmp_path, NODE)
    found = ran(tmp_path, made, "node", "--test", "--test-reporter=tap")
    assert {path for path in found if not Conventions(frozenset({"node"})).is_test(path)} == set()
    assert {"a.test.js", "test/latest.js", "lib/test-a.js"} <= found
