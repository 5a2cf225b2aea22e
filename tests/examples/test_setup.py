"""`make setup` on machines that lack something: it says what, and what to type."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ("sh", "cat", "cksum", "dirname", "id", "grep", "env")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout on a machine whose PATH has the plainest tools, no Python and no uv."""
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "uv.lock", "scripts/setup.sh"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    for name in TOOLS:
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def _program(place: Path, text: str) -> None:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)


def _setup(place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", place / "scripts" / "setup.sh"],
        env={"PATH": str(place / "bin"), "HOME": str(place)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_python(bare: Path):
    """Without a Python that is new enough it names the package."""
    _program(bare / "bin" / "python3", "exit 1")
    done = _setup(bare)
    assert done.returncode == 1
    assert "apt-get install python3 python3-venv" in done.stderr


def test_python_without_ensurepip(bare: Path):
    """Debian's Python without python3-venv: the very package is named, and nothing is installed unasked."""
    _program(bare / "bin" / "apt-get", f"touch {bare}/asked; exit 1")
    _program(
        bare / "bin" / "python3",
        'case "$*" in *ensurepip*|*virtualenv*|*pip*) exit 1 ;; esac\nexec /usr/bin/env -i /usr/bin/python3 "$@"',
    )
    done = _setup(bare)
    assert done.returncode == 1
    assert "ensurepip is missing" in done.stderr
    assert "apt-get install --yes python3" in done.stderr
    assert not (bare / "asked").exists()
    assert not (bare / ".venv").exists()


def test_nothing_to_do(bare: Path):
    """What is set up already, at this place, from this lock, takes no step."""
    (bare / ".venv" / "bin").mkdir(parents=True)
    _program(bare / ".venv" / "bin" / "python", "exit 0")
    wanted = subprocess.run(
        ["/bin/sh", "-c", "cat pyproject.toml uv.lock scripts/setup.sh | cksum"],
        cwd=bare,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (bare / ".venv" / ".setup-done").write_text(f"{wanted} {bare}/.venv\n")
    done = _setup(bare)
    assert (done.returncode, done.stderr) == (0, "")
