"""What a standby was loaded from is watched, beyond ringfence itself."""

import shutil
from pathlib import Path

import h11
import pytest
from tests.cli.standby.conftest import Lab

from ringfence.cli.standby.files import signs


@pytest.mark.slow
def test_a_replaced_file_of_a_dependency_ends_it(tmp_path: Path, place: Path):
    """As an editor or a patch replaces one, with no package installed: the command runs the new code."""
    copied = tmp_path / "copied" / "h11"
    shutil.copytree(Path(h11.__file__).parent, copied)
    lab = Lab(tmp_path / "state", {"PYTHONPATH": str(copied.parent)})
    lab.state.mkdir(mode=0o700)
    started = lab.run("standby", "start")
    assert started.returncode == 0, started.stderr
    try:
        _, served = lab.served(lambda: lab.run("exec", "-C", place, "--", "true"))
        (copied / "new").write_text((copied / "_events.py").read_text() + "\n")
        (copied / "new").rename(copied / "_events.py")
        done = lab.run("exec", "-C", place, "--", "true")
        assert (served, done.returncode) == (1, 0)
        assert lab.run("standby", "status").returncode == 1
    finally:
        lab.run("standby", "stop", "--now")


def test_files_that_run_code_at_each_start_count():
    """Those of `site`, which can be written anew without a trace in their directory."""
    assert [path for path in signs() if path.endswith(".pth")]
