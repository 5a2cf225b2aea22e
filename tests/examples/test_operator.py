"""The operator's lab, by its own script: containers, a fault, an agent in a fence, and a check that decides."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.sandbox.conftest import image_for

LAB = Path(__file__).resolve().parent.parent.parent / "examples" / "operator"

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("operator"),
]


def run_lab(place: Path, agent: str) -> subprocess.CompletedProcess[str]:
    """What the script comes to with this agent."""
    image_for("docker")  # skips where there is no engine
    place.chmod(0o755)
    own = {
        "TMPDIR": str(place),
        "AGENT": agent,
        "OPERATOR_RINGFENCE": str(Path(sys.executable).with_name("ringfence")),
    }
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "RINGFENCE_"))
    }
    return subprocess.run(
        [LAB / "run.sh"], env={**environment, **own}, capture_output=True, text=True, timeout=500, check=False
    )


def left_behind(place: Path) -> list[str]:
    """Containers of the lab that ran in this place; those of others, or of an earlier, killed one, are none of ours."""
    (lab,) = place.glob("ringfence-operator.*")
    listed = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"label=ringfence-lab={lab.name.lower().replace('.', '-')}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split()


def test_repaired(tmp_path: Path):
    """The agent repairs the shop by a filtered restart; what it was not granted is refused and in the record."""
    done = run_lab(tmp_path, "repairs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded: the check passed" in done.stderr
    assert "forwarded POST /" in done.stdout
    assert "refused    POST /v1.41/containers/create" in done.stdout
    assert left_behind(tmp_path) == []


@pytest.mark.any_user  # the same lab is repaired as everybody
def test_only_said(tmp_path: Path):
    """An agent that only claims a repair does not get its way: the check is red."""
    done = run_lab(tmp_path, "only-says-so")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "check_red" in done.stderr
    assert left_behind(tmp_path) == []
