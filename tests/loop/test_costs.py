"""What one story costs besides the work of its agents: statements of SQL."""

import sys
from pathlib import Path

import pytest
from tests.loop.machine.project import Project, parts_of, story_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
_MOST_STATEMENTS = 65


def test_a_trivial_story_takes_few_statements(tmp_path: Path):
    """Each step is written down as it begins and as it ends, and nothing asks for what is in memory."""
    project, log = Project.make(tmp_path, [story_of("one")], parts_of("one")), tmp_path / "statements"
    counting = (sys.executable, str(Path(__file__).with_name("counting.py")), str(log))
    done = project.start(command=counting)
    assert done.returncode == 0, done
    statements = [line for line in log.read_text().splitlines() if line.startswith("loop.")]
    assert 0 < len(statements) <= _MOST_STATEMENTS, "\n".join(statements)
