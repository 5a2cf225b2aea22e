"""What one story costs besides the work of its agents: statements of SQL, and git processes."""

import sys
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_MOST_STATEMENTS = 120
_MOST_OF_THE_LOOP = 65
_MOST_GIT_PROCESSES = 35


def test_a_trivial_story_takes_few_statements_and_git_processes(tmp_path: Path):
    """Each step is written down as it begins and as it ends, and nothing asks for what is in memory."""
    project, log = Project.make(tmp_path, [story_of("one")], parts_of("one")), tmp_path / "statements"
    counting = (sys.executable, str(Path(__file__).with_name("counting.py")), str(log))
    done = project.start(command=counting)
    assert done.returncode == 0, done
    lines = log.read_text().splitlines()
    git = [line for line in lines if line.startswith("git ")]
    statements = [line for line in lines if not line.startswith("git ")]
    of_loop = [line for line in statements if line.startswith("loop.")]
    assert 0 < len(git) <= _MOST_GIT_PROCESSES, "\n".join(git)
    assert 0 < len(statements) <= _MOST_STATEMENTS, "\n".join(statements)
    assert 0 < len(of_loop) <= _MOST_OF_THE_LOOP, "\n".join(of_loop)
