"""Manual checkpoints, and the checkpoint before a run."""

from .conftest import Unpack
from .recipes import WRONG


def test_checkpoints_are_listed_and_compared(golden: Unpack):
    """They are compared with each other and with the workspace."""
    checkpoints = golden("checkpoints")
    rows = checkpoints.run("checkpoint ls", "--json").json
    assert sorted(row["name"] for row in rows) == ["before-restore", "first", "second"]
    assert "+more" in checkpoints.run("checkpoint diff", "first", "second").stdout
    lines = checkpoints.run("checkpoint diff", "first", "--stat").stdout.splitlines()
    changes = {line.split()[-1]: line.split()[0] for line in lines}
    assert changes == {"run.txt": "added", "calc.py": "modified", "link": "deleted"}


def test_a_checkpoint_is_restored(golden: Unpack):
    """Contents, links and modes are restored, ignored files stay, and the previous state becomes `before-restore`."""
    checkpoints = golden("checkpoints")
    project = checkpoints.project
    checkpoints.run("checkpoint restore", "second")
    assert (project / "calc.py").read_text() == WRONG.replace("-", "+")
    assert (project / "more.txt").read_text() == "more\n"
    assert str((project / "link").readlink()) == "calc.py"
    assert (project / "tool.sh").stat().st_mode & 0o111
    assert (project / "ignored.log").read_text() == "ignored\n"
    assert not (project / "run.txt").exists()
    checkpoints.run("checkpoint restore", "before-restore")
    assert (project / "run.txt").exists()


def test_a_run_is_undone(golden: Unpack):
    """The files that the run changed, created and deleted are as they were before it."""
    checkpoints = golden("checkpoints")
    checkpoints.run("undo", checkpoints.facts["run"])
    assert (checkpoints.project / "calc.py").read_text() == WRONG
    assert (checkpoints.project / "link").is_symlink()
    assert not (checkpoints.project / "run.txt").exists()


def test_checkpoints_are_created_and_removed(golden: Unpack):
    """The existing store accepts both."""
    checkpoints = golden("checkpoints")
    checkpoints.run("checkpoint rm", "first")
    checkpoints.run("checkpoint create", "third")
    rows = checkpoints.run("checkpoint ls", "--json").json
    assert sorted(row["name"] for row in rows) == ["before-restore", "second", "third"]
