"""Keeping a state by hand and going back to it, as a user does."""

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
