"""Writing checkpoints back touches what differs, follows no link, and can itself be taken back."""

import os
import stat
from pathlib import Path

import pytest

from ringfence.sandbox.workspace.restore import WorkspaceConflict, materialise, restore
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

# ruff: noqa: ASYNC240 - tests prepare their files with plain blocking calls
pytestmark = pytest.mark.anyio


async def undo(store: SnapshotStore, before: str, *, force: bool = False):
    """Take back all that happened since `before`."""
    after = await store.take("r/after", base=before)
    return await restore(store, wanted=before, expected=after.id, label="r/beforeundo", force=force)


async def test_all_kinds_of_changes_are_taken_back(repository: Path, store: SnapshotStore):
    """Contents, links, executable bits and deleted directories are as they were; what was added is gone."""
    (repository / "link").symlink_to("a.txt")
    before = await store.take("r/before")
    (repository / "a.txt").write_text("changed")
    (repository / "sub" / "b.txt").unlink()
    (repository / "sub").rmdir()
    (repository / "run.sh").chmod(0o644)
    (repository / "link").unlink()
    (repository / "link").mkdir()
    (repository / "link" / "deep").touch()
    (repository / "fresh").mkdir()
    (repository / "fresh" / "x").touch()
    await undo(store, before.id)
    assert (await store.take("r/check")).tree == before.tree
    assert not (repository / "fresh").exists()
    assert [path.name for path in repository.iterdir() if path.name.startswith(".ringfence")] == []


async def test_untouched_files_are_not_written(repository: Path, store: SnapshotStore):
    """A file that does not differ keeps its inode and time."""
    before = await store.take("r/before")
    status = (repository / "a.txt").stat()
    (repository / "other").touch()
    await undo(store, before.id)
    again = (repository / "a.txt").stat()
    assert (again.st_ino, again.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


@pytest.mark.parametrize("force", [False, True])
async def test_files_changed_since_are_a_conflict(force: bool, repository: Path, store: SnapshotStore):
    """Nothing is written, and the files are named, unless it is forced."""
    before = await store.take("r/before")
    (repository / "a.txt").write_text("agent")
    (repository / "sub/b.txt").write_text("agent")
    after = await store.take("r/after", base=before.id)
    (repository / "a.txt").write_text("user")
    if force:
        await restore(store, wanted=before.id, expected=after.id, label="r/beforeundo", force=True)
        assert (repository / "a.txt").read_text() == "one\n"
        return
    with pytest.raises(WorkspaceConflict, match=r"--force") as caught:
        await restore(store, wanted=before.id, expected=after.id, label="r/beforeundo")
    assert caught.value.paths == ("a.txt",)
    assert (repository / "a.txt").read_text() == "user"
    assert (repository / "sub/b.txt").read_text() == "agent"


async def test_other_files_of_the_user_stay(repository: Path, store: SnapshotStore):
    """What the user did elsewhere after the run is neither a conflict nor lost."""
    before = await store.take("r/before")
    (repository / "a.txt").write_text("agent")
    after = await store.take("r/after", base=before.id)
    (repository / "mine").write_text("user")
    await restore(store, wanted=before.id, expected=after.id, label="r/beforeundo")
    assert (repository / "mine").read_text() == "user"
    assert (repository / "a.txt").read_text() == "one\n"


async def test_it_can_be_taken_back(repository: Path, store: SnapshotStore):
    """The state before a restore is a checkpoint like any other."""
    before = await store.take("r/before")
    (repository / "a.txt").write_text("agent")
    done = await undo(store, before.id)
    await restore(store, wanted=done.safety.id, expected=before.id, label="r/again")
    assert (repository / "a.txt").read_text() == "agent"


async def test_parent_that_became_a_link_is_replaced(repository: Path, store: SnapshotStore, ground: Path):
    """Nothing is written through a link that took a directory's place."""
    outside = ground / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("not yours")
    before = await store.take("r/before")
    (repository / "sub" / "b.txt").unlink()
    (repository / "sub").rmdir()
    (repository / "sub").symlink_to(outside)
    await undo(store, before.id)
    assert (outside / "b.txt").read_text() == "not yours"
    assert not (repository / "sub").is_symlink()
    assert (repository / "sub" / "b.txt").read_text() == "two\n"


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


async def test_closed_directories_are_opened(repository: Path, store: SnapshotStore):
    """An agent that took away the owner's rights on a directory does not stop an undo."""
    before = await store.take("r/before")
    (repository / "sub" / "b.txt").write_text("agent")
    (repository / "sub").chmod(0o500)
    await undo(store, before.id)
    assert (repository / "sub" / "b.txt").read_text() == "two\n"


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

    async def test_restored_files_belong_to_the_owner(self, repository: Path, state: Path, own):
        """Nothing in a user's workspace comes to belong to root."""
        own(repository)
        store = SnapshotStore(repository, state, actor=Actor(12_345, 12_345))
        before = await store.take("r/before")
        (repository / "sub" / "b.txt").unlink()
        (repository / "sub").rmdir()
        await undo(store, before.id)
        for path in (repository / "sub", repository / "sub" / "b.txt"):
            assert (path.stat().st_uid, path.stat().st_gid) == (12_345, 12_345)

    async def test_what_the_owner_may_not_read_is_not_kept(self, repository: Path, state: Path, own):
        """Root's own file, or a hard link to one, in a user's workspace is skipped and named."""
        own(repository)
        (repository / "roots").write_text("secret")
        (repository / "roots").chmod(0o600)
        store = SnapshotStore(repository, state, actor=Actor(12_345, 12_345))
        assert (await store.take("r/x")).skipped == {"roots": "permission denied"}

    async def test_materialised_files_belong_to_the_sandbox(
        self, repository: Path, state: Path, ground: Path
    ):
        """A clone belongs to the sandbox's identity as a whole."""
        store = SnapshotStore(repository, state)
        (ground / "clone").mkdir()
        await materialise(store, (await store.take("r/x")).id, ground / "clone", Actor(87_463, 87_463))
        paths = [ground / "clone", *(ground / "clone").rglob("*")]
        assert {path.lstat().st_uid for path in paths} == {87_463}

    async def test_identity_does_not_leak(self):
        """After acting as somebody, this process is root again in all its threads."""
        actor = Actor(12_345, 12_345)
        assert await actor.call(lambda: Path("/proc/thread-self/status").read_text().count("12345")) >= 2
        assert "12345" not in Path("/proc/thread-self/status").read_text()
        assert os.geteuid() == 0


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
