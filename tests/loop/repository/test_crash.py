"""Killed at any point and done again, a loop's git side comes to what it would have come to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def tried(
    users: Path, ground: Path, *, first: int, step: int, delay_ms: int
) -> tuple[int, dict[str, object]]:
    """How many points were tried, and where something else came out."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.loop.repository.story",
            users,
            ground / "crash",
            str(first),
            str(step),
            str(delay_ms),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = json.loads(done.stdout)
    return found["tried"], found["different"]


# Of the 330 points of the whole way: to try all takes five minutes.
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [1, 10, 19])
def test_killed_at_a_point(first: int, users: Path, ground: Path) -> None:
    """Before a process is started, a file made, moved, linked or removed: what was begun comes to its end."""
    count, different = tried(users, ground, first=first, step=27, delay_ms=0)
    assert different == {}
    assert count > 5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("delay_ms", [1, 3])
def test_killed_while_git_works(delay_ms: int, users: Path, ground: Path) -> None:
    """A git that goes on after its caller was killed is waited for: it and the next do not write at once."""
    count, different = tried(users, ground, first=2, step=40, delay_ms=delay_ms)
    assert different == {}
    assert count > 5
