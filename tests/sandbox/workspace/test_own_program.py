"""Ringfence itself is out of the agent's reach."""

import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.ownership import check_own_program


def _refusal(place: Path) -> str | None:
    """Why a workspace is refused, if it is."""
    try:
        check_own_program(place)
    except PolicyRefused as exc:
        return str(exc)
    return None


@pytest.mark.parametrize(
    "place", [Path(sys.prefix), Path(sys.prefix).parent, Path(__file__).resolve().parents[3] / "src"]
)
def test_a_workspace_that_holds_our_own_program_is_refused(place: Path):
    """What an agent writes there, the next command would run on the host."""
    assert "ringfence itself runs from" in (_refusal(place) or "")


def test_another_workspace_is_not(tmp_path: Path):
    """An ordinary project."""
    assert _refusal(tmp_path) is None


_SCRIPT = """
from pathlib import Path
from ringfence.sandbox.workspace.ownership import check_own_program
check_own_program(Path(__file__).parent)
Path(__file__).with_name("wave.py").write_text("raise SystemExit('an agent was here')")
import wave
import beside
"""


@pytest.mark.slow
def test_a_script_in_its_own_project_may_run(tmp_path: Path):
    """Its directory is not where ringfence runs from; what appears there takes no other module's place."""
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    (tmp_path / "beside.py").write_text("")
    for command in ([str(script)], ["-m", "script"]):
        ended = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_modules_in_the_workspace_are_refused(tmp_path: Path):
    """A directory that was put on the path on purpose; the error says what to do from Python, too."""
    (tmp_path / "lib").mkdir()
    code = "import sys; sys.path.insert(1, sys.argv[1]); from ringfence.sandbox.workspace.ownership import *"
    code += "\ncheck_own_program(__import__('pathlib').Path(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(tmp_path / "lib"), str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert "SandboxSpec(mode='read_only')" in ended.stderr
