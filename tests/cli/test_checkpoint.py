"""Keeping a state by hand and going back to it, as a user does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture
def checkpoint(ringfence: Cli, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `ringfence checkpoint` in the workspace."""
    monkeypatch.chdir(workspace)
    return lambda *arguments: ringfence("checkpoint", *arguments)


def test_a_state_is_kept_and_comes_back(checkpoint: Cli, workspace: Path):
    """Create, change, look at the difference, restore."""
    assert checkpoint("create", "good").code == 0
    (workspace / "app.py").write_text("print('two')\n")
    assert "+print('two')" in checkpoint("diff", "good").out
    ended = checkpoint("restore", "good")
    assert (workspace / "app.py").read_text() == "print('one')\n"
    assert ("app.py" in ended.out, "before-restore" in ended.err) == (True, True)


@pytest.mark.slow
def test_a_program_reads_what_there_is(checkpoint: Cli):
    """`--json` gives what was kept and what is listed; a removed one is not."""
    kept = json.loads(checkpoint("create", "good", "--json").out)
    listed = json.loads(checkpoint("ls", "--json").out)
    assert [(one["name"], one["tree"]) for one in listed] == [("good", kept["tree"])]
    assert checkpoint("rm", "good").code == 0
    assert json.loads(checkpoint("ls", "--json").out) == []


@pytest.mark.slow
def test_a_patch_is_handed_on(checkpoint: Cli, workspace: Path, tmp_path: Path, git: Cli):
    """`--raw` is what `git apply` takes."""
    checkpoint("create", "good")
    (workspace / "app.py").write_text("print('two')\n")
    patch = tmp_path / "patch"
    patch.write_text(checkpoint("diff", "good", "--raw").out)
    checkpoint("restore", "good")
    git(workspace, "apply", str(patch))
    assert (workspace / "app.py").read_text() == "print('two')\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("restore", "absent"), 1, "no checkpoint 'absent'"),
        (("create", "a/b"), 2, "cannot name a checkpoint"),
        (("diff", "x", "--stat", "--raw"), 2, "give one of them"),
    ],
    ids=["absent", "bad name", "two views"],
)
def test_bad_input_gets_one_line(checkpoint: Cli, arguments: tuple[str, ...], code: int, said: str):
    """What is wrong is said in one line, with the documented exit code."""
    ended = checkpoint(*arguments)
    assert (ended.code, said in ended.err, ended.err.count("\n")) == (code, True, 1)
