"""`make demo-loop`, as somebody has it who types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
@pytest.mark.any_user  # smaller loops are worked as everybody
@pytest.mark.timeout(400)
def test_the_demo_ends_with_a_branch_of_what_passed(tmp_path: Path):
    """`make demo-loop` without a key: four stories are on the branch, nothing of the fifth, and all of it is green."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC", "CLAUDE"))
    }
    done = subprocess.run(
        [ROOT / "scripts" / "demo-loop.sh"],
        env={
            **environment,
            "TMPDIR": str(tmp_path),
            "DEMO_RINGFENCE": str(Path(sys.executable).with_name("ringfence")),
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for line in ("No key is set", "exit code 3", "Ben pays Ada 18.17", "Done."):
        assert line in done.stdout
    (project,) = tmp_path.glob("ringfence-demo.*/kitty")
    assert not (project / "tests" / "test_comma.py").exists()
    assert "_GROUPED" not in (project / "kitty" / "money.py").read_text()
