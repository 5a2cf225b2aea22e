"""Ringfence itself is out of the agent's reach."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import ringfence
from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.open import check_own_program


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


_SCRIPT = """
from pathlib import Path
from ringfence.sandbox.workspace.open import check_own_program
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


_CHECK = """
import sys
from pathlib import Path
sys.path.insert(1, sys.argv[1])
from ringfence.sandbox.workspace.open import check_own_program
check_own_program(Path(sys.argv[2]))
"""


@pytest.mark.parametrize("way", ["lib", "lib/../../elsewhere"], ids=["into it", "through it"])
def test_a_module_path_in_the_workspace_is_refused(way: str, tmp_path: Path):
    """A directory of the workspace on the module path, or on the way to one, is refused; an agent could change it."""
    (tmp_path / "lib").mkdir()
    command = [sys.executable, "-c", _CHECK, f"{tmp_path}/{way}", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert "ringfence itself runs from" in ended.stderr
    assert "SandboxSpec(mode='clone')" in ended.stderr


_OPEN = """
import sys
import anyio
from pathlib import Path
from ringfence.sandbox import Sandbox, SandboxSpec

async def main():
    spec = SandboxSpec(backend="bubblewrap", workspace=Path(sys.argv[1]))
    async with Sandbox.open(spec) as sandbox:
        for command in sys.argv[2:]:
            result = await sandbox.run(["sh", "-c", command])
            print(result.exit_code)

anyio.run(main)
"""


@pytest.fixture
def project(workspace: Path, own: Callable[..., None]) -> Path:
    """A user's project with a virtual environment that ringfence can be run from, and a directory."""
    environment = workspace / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    for path in sys.path:
        if path.endswith("site-packages"):
            copied = [
                each
                for each in Path(path).iterdir()
                if each.name not in ("__editable__", "ringfence") and each.suffix != ".pth"
            ]
            for each in copied:
                (site / each.name).symlink_to(each)
    (site / "ringfence").symlink_to(Path(ringfence.__file__).parent)
    (workspace / "sub").mkdir()
    if os.geteuid() == 0:
        own(workspace)
    return workspace


def _open(project: Path, program: str, *commands: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [program, "-c", _OPEN, str(project), *commands]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_projects_own_environment_is_read_only(project: Path):
    """Ringfence in the project's virtual environment runs; what it runs from cannot be changed, the project can."""
    ended = _open(
        project, ".venv/bin/python", "echo x > new", "echo x > .venv/new", "mv .venv .away", cwd=project
    )
    assert ended.stdout.split() == ["0", "2", "1"], ended
    assert (project / "new").exists()
    assert not (project / ".venv" / "new").exists()


@pytest.mark.slow
def test_a_command_from_the_projects_own_environment(project: Path):
    """The command line runs from there as well, and says once that the environment is read-only."""
    script = "echo x > .venv/new; echo x > new; .venv/bin/python -c 'import json'"
    command = [".venv/bin/python", "-m", "ringfence", "exec", "--mode", "bind", "--", "sh", "-c", script]
    ended = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    assert ended.stderr.count("'.venv' is read-only inside") == 1
    assert ((project / "new").exists(), (project / ".venv" / "new").exists()) == (True, False)


@pytest.mark.slow
def test_an_environment_beside_the_project(project: Path, ground: Path):
    """One that is named by a path through the parent of the project is no part of it."""
    beside = ground / "venv"
    (project / ".venv").rename(beside)
    ended = _open(project, "../venv/bin/python", "echo x > new", cwd=project)
    assert ended.stdout.split() == ["0"], ended


@pytest.mark.slow
def test_an_environment_behind_a_link(project: Path, ground: Path):
    """One that a link of the project leads to is refused: an agent could lead it elsewhere."""
    (project / ".venv").rename(ground / "venv")
    (project / ".venv").symlink_to(ground / "venv")
    ended = _open(project, ".venv/bin/python", "true", cwd=project)
    assert "ringfence itself runs from" in ended.stderr
