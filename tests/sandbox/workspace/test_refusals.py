"""Which directories are never a workspace."""

import os
from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused, UsageError
from ringfence.sandbox.base import Traits
from ringfence.sandbox.workspace.open import REFUSALS, check_workspace, open_workspace


@pytest.fixture
def home(ground: Path) -> Path:
    """A home with a state directory in it."""
    (ground / "home" / "alice" / ".local" / "state" / "ringfence" / "runs").mkdir(parents=True)
    bare = ground / "bare.git"
    for name in ("objects", "refs"):
        (bare / name).mkdir(parents=True)
    for name in ("HEAD", "config"):
        (bare / name).touch()
    return ground / "home" / "alice"


CASES = [
    ("/", "workspace-root"),
    *(
        (name, "workspace-system")
        for name in ("/etc", "/usr", "/usr/lib", "/proc", "/sys", "/dev", "/tmp", "/var")
    ),
    ("{home}", "workspace-home"),
    ("{home}/..", "workspace-above-home"),
    ("{home}/.local/state/ringfence", "workspace-in-state"),
    ("{home}/.local/state/ringfence/runs", "workspace-in-state"),
    ("{home}/.local", "workspace-above-state"),
    ("{home}/../../bare.git", "workspace-git-dir"),
]


@pytest.mark.parametrize(("path", "rule"), CASES)
def test_refused(path: str, rule: str, home: Path):
    """Each row of the table refuses, also through a link, and says what to do."""
    link = home / "link"
    link.symlink_to(path.format(home=home))
    for asked in (Path(path.format(home=home)), link):
        with pytest.raises(PolicyRefused, match="use a directory of the project's own") as caught:
            check_workspace(asked, home=home, state=home / ".local/state/ringfence")
        assert caught.value.rule == rule


def test_every_row_is_tested():
    """The table and the test above name the same rules."""
    assert {rule for _, rule in CASES} == {refusal.rule for refusal in REFUSALS}


@pytest.mark.parametrize(("name", "words"), [("absent", "cannot be found"), ("file", "is no directory")])
def test_not_a_directory(name: str, words: str, home: Path):
    """What is not there, or is a file, is a usage error that names it."""
    (home / "file").touch()
    with pytest.raises(UsageError, match=words):
        check_workspace(home / name, home=home, state=home / "state")


def test_link_to_itself(home: Path):
    """A loop of links is a usage error."""
    (home / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="cannot be found"):
        check_workspace(home / "loop", home=home, state=home / "state")


@pytest.mark.anyio
@pytest.mark.parametrize("rights", [0o000, 0o300, 0o600])
async def test_unreadable(rights: int, ground: Path, state: Path):
    """A directory whose owner may not list it, or not enter it, is a usage error."""
    closed = ground / "closed"
    closed.mkdir()
    if os.geteuid() == 0:
        os.chown(closed, 12_345, 12_345)
    closed.chmod(rights)
    with pytest.raises(UsageError, match=r"cannot be (read|reached by its owner)"):
        async with open_workspace(closed, None, state=state, holder=None, traits=Traits()):
            pass


def test_ordinary_project(home: Path):
    """A directory within a home is a workspace; links to it are resolved."""
    (home / "project").mkdir()
    (home / "link").symlink_to("project")
    assert check_workspace(home / "link", home=home, state=home / "state") == (home / "project").resolve()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees what others hide")
def test_root_does_not_follow_the_links_of_others(home: Path):
    """A user's link must not show a sandbox what the user may not see."""
    (home / "project").mkdir()
    (home / "link").symlink_to("project")
    os.lchown(home / "link", 1500, 1500)
    with pytest.raises(PolicyRefused, match="a link that does not belong to root"):
        check_workspace(home / "link", home=home / "h", state=home / "state")
