"""A `.git` that names directories elsewhere: these are neither mounted nor written to."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import slow_after
from tests.sandbox.workspace.runs import prepare

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.commits import unsafe_to_write
from ringfence.sandbox.workspace.git.layout import GitLayout, examine_git, find_git
from ringfence.sandbox.workspace.git.private import Identity, make_private_git
from ringfence.sandbox.workspace.run import RunWorkspace
from ringfence.sandbox.workspace.run_as import Actor

pytestmark = pytest.mark.anyio


@pytest.fixture
def secret(ground: Path) -> Path:
    """A directory outside of the workspace."""
    path = ground / "secret"
    path.mkdir()
    (path / "id_ed25519").write_text("SECRET")
    return path


@pytest.fixture
def elsewhere(ground: Path, git) -> Path:
    """Another repository, with a commit."""
    path = ground / "elsewhere"
    path.mkdir()
    git(path, "init", "-q")
    git(path, "commit", "-q", "--allow-empty", "-m", "private")
    return path


@pytest.fixture
def ready(state: Path, own) -> Callable[..., object]:
    """A function that prepares a run in mode `bind`."""

    async def make(workspace: Path, run: str = "run-1") -> RunWorkspace:
        if os.geteuid() == 0:
            own(workspace)
        return await prepare(workspace, "bind", run=run, run_dir=state / "runs" / run, state=state)

    return make


def shown(prepared: RunWorkspace) -> set[Path]:
    """The directories and files of the host that are mounted over the workspace."""
    return {mount.source for mount in prepared.placement.mounts}


def layout_of(workspace: Path) -> GitLayout:
    """The git directory, which has to exist."""
    layout = find_git(workspace)
    assert layout is not None
    return layout


@pytest.mark.parametrize("line", slow_after(1, ["{secret}", "../../../secret", "../../link"]))
async def test_alternates_outside_are_not_mounted(line: str, repository: Path, secret: Path, ready):
    """An object database outside is not mounted, whatever path names it: the agent's repository is empty."""
    (repository / "link").symlink_to(secret)
    (repository / ".git/objects/info/alternates").write_text(line.format(secret=secret) + "\n")
    prepared = await ready(repository)
    assert shown(prepared) == {prepared.run_dir / "git"}
    assert prepared.workspace.repositories[0].refs.direct == {}
    assert "git repack -a -d && rm .git/objects/info/alternates" in prepared.notes[0]
    assert unsafe_to_write(prepared.workspace.layout, "run-1") is not None


def test_alternates_inside_are_used(repository: Path):
    """An object database within `.git` is used."""
    (repository / ".git/more/objects").mkdir(parents=True)
    (repository / ".git/objects/info/alternates").write_text("../more/objects\n")
    layout = layout_of(repository)
    assert layout.refused is None
    assert layout.databases == (layout.objects, repository / ".git/more/objects")


@pytest.mark.parametrize("name", ["id_ed25519", "pack"])
def test_foreign_entries_of_an_object_database_are_refused(name: str, repository: Path, secret: Path):
    """An object database with links, or with files that git does not keep there, is not mounted."""
    target = repository / ".git/objects" / name
    if target.exists():
        target.rmdir()
    target.symlink_to(secret)
    assert name in str(layout_of(repository).refused)


async def test_gitdir_without_link_back(workspace: Path, elsewhere: Path, ready, own):
    """A `.git` file that names another repository of the user's is mounted as a file, and the repository is not used."""
    if os.geteuid() == 0:
        own(elsewhere)
    (workspace / ".git").write_text(f"gitdir: {elsewhere}/.git\n")
    prepared = await ready(workspace)
    assert (prepared.workspace.layout, prepared.workspace.repositories) == (None, ())
    assert shown(prepared) == {workspace / ".git"}
    assert "does not name this workspace in turn" in prepared.notes[0]


def test_link_back_within_the_workspace(workspace: Path, git):
    """A link back within the workspace does not count, as an agent could have written it."""
    (workspace / "main").mkdir()
    git(workspace / "main", "init", "-q")
    git(workspace / "main", "commit", "-q", "--allow-empty", "-m", "x")
    git(workspace / "main", "worktree", "add", "-q", "../tree")
    (workspace / ".git").write_text("gitdir: main/.git/worktrees/tree\n")
    (workspace / "main/.git/worktrees/tree/gitdir").write_text(f"{workspace}/.git\n")
    assert find_git(workspace) is None
    assert find_git(workspace / "tree") is None
    assert isinstance(examine_git(workspace), str)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_link_back_of_another_user(workspace: Path, elsewhere: Path, git, own):
    """A repository of another user that names the workspace is not used."""
    workspace.rmdir()
    git(elsewhere, "worktree", "add", "-q", str(workspace))
    assert find_git(workspace) is not None
    own(elsewhere)
    assert find_git(workspace) is None


def test_commondir_outside(repository: Path, elsewhere: Path):
    """A `.git` directory with a `commondir` elsewhere is not used."""
    (repository / ".git/commondir").write_text(f"{elsewhere}/.git\n")
    note = examine_git(repository)
    assert isinstance(note, str)
    assert "commondir" in note


@pytest.mark.parametrize("name", ["objects", "refs"])
def test_part_that_is_a_link(name: str, repository: Path, elsewhere: Path):
    """A git directory with a link in place of `objects` or `refs` is not used."""
    (repository / ".git" / name).rename(repository / ".git" / f"{name}.old")
    (repository / ".git" / name).symlink_to(elsewhere / ".git" / name)
    note = examine_git(repository)
    assert isinstance(note, str)
    assert name in note


@pytest.mark.parametrize(
    "name", ["refs/ringfence", "refs/ringfence/run-1", "logs", "logs/refs", "packed-refs", "config"]
)
def test_nothing_is_written_through_a_link(name: str, repository: Path, secret: Path):
    """Commits are not imported where a link would lead a write to another place."""
    layout = layout_of(repository)
    assert unsafe_to_write(layout, "run-1") is None
    path = repository / ".git" / name
    path.parent.mkdir(exist_ok=True)
    if os.path.lexists(path):
        path.rename(repository / "old")
    path.symlink_to(secret)
    assert "is a link" in str(unsafe_to_write(layout, "run-1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what its owner may not")
@pytest.mark.parametrize("alternates", ["/etc", None])
async def test_root_copies_only_objects(alternates: str | None, repository: Path, state: Path, git):
    """If only root can read the objects, they are copied, and no other file that lies or is named there."""
    objects = repository / ".git/objects"
    objects.chmod(0o700)
    (objects / "pack/notes").write_text("SECRET")
    (objects / "pack" / f"pack-{'0' * 40}.pack").symlink_to("/etc/shadow")
    if alternates:
        (objects / "info/alternates").write_text(alternates + "\n")
    make_private_dir(state)
    layout, owner = layout_of(repository), Actor(12_345, 12_345)
    await make_private_git(layout, state / "git", reader=Actor(0, 0), owner=owner, identity=Identity())
    found = {path.suffix for path in (state / "git/objects").rglob("*") if path.is_file()}
    assert found <= {".pack", ".idx", ".rev"}
    if alternates:
        assert found == set()
    else:
        own = ("--git-dir=.", f"--work-tree={repository}")
        assert git(state / "git", *own, "fsck", "--full", "--strict") == ""
        assert git(state / "git", *own, "log", "--format=%s") == "work"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can read for another user")
async def test_another_users_objects_are_read_as_that_user(repository: Path, state: Path, own):
    """Root copies objects with their owner's permissions, not its own."""
    own(repository)
    victim = next((repository / ".git/objects").glob("[0-9a-f][0-9a-f]/*"))
    os.chown(victim, 0, 0)
    victim.chmod(0o400)
    (repository / ".git/objects").chmod(0o700)
    make_private_dir(state)
    reader, owner = Actor(12_345, 12_345), Actor(54_321, 54_321)
    layout = await reader.call(lambda: layout_of(repository))
    making = make_private_git(layout, state / "git", reader=reader, owner=owner, identity=Identity())
    with pytest.raises(InfrastructureFault):
        await making
