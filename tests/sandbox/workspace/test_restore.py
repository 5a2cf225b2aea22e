"""Writing checkpoints back touches what differs, follows no link, and can itself be taken back."""

import os
import stat
from pathlib import Path

import pytest

from ringfence.sandbox.workspace.restore import WorkspaceConflict, materialise, restore
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio


async def undo(store: SnapshotStore, before: str, *, force: bool = False):
    """Take back all that happened since `before`."""
    after = await store.take("r/after", base=before)
    return await restore(store, wanted=before, expected=after.id, label="r/beforeundo", force=force)


async def test_link_in_the_way_that_nobody_covers(repository: Path, store: SnapshotStore, ground: Path):
    """An ignored link in a parent's place is a conflict, not a way out of the workspace."""
    (ground / "outside").mkdir()
    (repository / ".gitignore").write_text("/sub\n")
    before = await store.take("r/before")
    (repository / "sub" / "b.txt").write_text("agent")
    after = await store.take("r/after", base=before.id)
    (repository / "sub").rename(repository / "moved")
    (repository / "sub").symlink_to(ground / "outside")
    with pytest.raises(WorkspaceConflict):
        await restore(store, wanted=before.id, expected=after.id, label="r/u", force=True)
    assert list((ground / "outside").iterdir()) == []


async def test_directory_with_uncovered_files_is_not_removed(repository: Path, store: SnapshotStore):
    """Ignored files in a directory that took a file's place are a conflict, even when forced."""
    (repository / ".gitignore").write_text("*.key\n")
    before = await store.take("r/before")
    (repository / "a.txt").unlink()
    (repository / "a.txt").mkdir()
    (repository / "a.txt" / "my.key").write_text("precious")
    with pytest.raises(WorkspaceConflict, match="in the way"):
        await undo(store, before.id, force=True)
    assert (repository / "a.txt" / "my.key").read_text() == "precious"


async def test_private_files_stay_private(workspace: Path, store: SnapshotStore):
    """A file that only its owner could read comes back so."""
    (workspace / "secret").write_text("x")
    (workspace / "secret").chmod(0o600)
    before = await store.take("r/before")
    (workspace / "secret").unlink()
    await undo(store, before.id)
    assert stat.S_IMODE((workspace / "secret").stat().st_mode) == 0o600


async def test_materialise_gives_an_equal_tree(repository: Path, store: SnapshotStore, ground: Path):
    """A directory filled from a checkpoint has its files, links and bits, and shares no inode with the workspace."""
    (repository / "link").symlink_to("/etc/passwd")
    before = await store.take("r/before")
    copy = ground / "copy"
    copy.mkdir()
    await materialise(store, before.id, copy, Actor.current())
    assert (await store.take("r/copy", base=before.id, root=copy)).tree == before.tree
    assert (copy / "a.txt").stat().st_nlink == 1
    assert (copy / "link").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for others")
class TestAsRoot:
    """A root caller acts as the workspace's owner."""

    async def test_what_the_owner_may_not_read_is_not_kept(self, repository: Path, state: Path, own):
        """Root's own file, or a hard link to one, in a user's workspace is skipped and named."""
        own(repository)
        (repository / "roots").write_text("secret")
        (repository / "roots").chmod(0o600)
        store = SnapshotStore(repository, state, actor=Actor(12_345, 12_345))
        assert (await store.take("r/x")).found.skipped == {b"roots": "permission denied"}

    async def test_materialised_files_belong_to_the_sandbox(
        self, repository: Path, state: Path, ground: Path
    ):
        """A clone belongs to the sandbox's identity as a whole."""
        store = SnapshotStore(repository, state)
        (ground / "clone").mkdir()
        await materialise(store, (await store.take("r/x")).id, ground / "clone", Actor(87_463, 87_463))
        paths = [ground / "clone", *(ground / "clone").rglob("*")]
        assert {path.lstat().st_uid for path in paths} == {87_463}


async def test_what_the_user_put_in_a_place_is_theirs(repository: Path, store: SnapshotStore):
    """A large file of the run may go; one that the user put there since is a conflict."""
    before = await store.take("r/before")
    os.truncate(repository / "a.txt", 101 * 1024**2)
    after = await store.take("r/after", base=before.id)
    (repository / "a.txt").unlink()
    with (repository / "a.txt").open("w") as file:
        file.write("mine")
        file.truncate(102 * 1024**2)
    with pytest.raises(WorkspaceConflict, match=r"a\.txt"):
        await restore(store, wanted=before.id, expected=after.id, label="r/beforeundo")
    with (repository / "a.txt").open() as file:
        assert file.read(4) == "mine"


@pytest.mark.slow
async def test_empty_directories_in_the_way(repository: Path, store: SnapshotStore):
    """A file comes back where a nest of empty directories took its place; one too deep to look into is named."""
    before = await store.take("r/before")
    (repository / "a.txt").unlink()
    (repository / "a.txt" / "/".join("d" * 50)).mkdir(parents=True)
    after = await store.take("r/after", base=before.id)
    await restore(store, wanted=before.id, expected=after.id, label="r/undo")
    assert (repository / "a.txt").read_text() == "one\n"
    (repository / "a.txt").unlink()
    (repository / "a.txt" / "/".join("d" * 300)).mkdir(parents=True)
    with pytest.raises(WorkspaceConflict, match="too deep"):
        await restore(store, wanted=before.id, expected=after.id, label="r/undo")
