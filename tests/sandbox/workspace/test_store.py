"""Checkpoints hold the workspace as it is, whatever is in it."""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.cases import slow_after

from ringfence.errors import InfrastructureFault, RecordError, UsageError
from ringfence.sandbox.workspace.snapshot import capture, objects
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio
# ruff: noqa: ASYNC220, ASYNC221, ASYNC240, PTH102 - tests prepare their files with plain blocking calls

HOSTILE_NAMES = [
    b"new\nline",
    b'"quoted"',
    b"back\\slash",
    b"\xff\xfe",
    b" space ",
    b"tab\t",
    b"-dash",
    b"\x01",
    b"caf\xc3\xa9",
]


def names(diff) -> dict[str, str]:
    """What a diff says, by path."""
    return {change.path: change.kind for change in diff.files}


async def test_unchanged_workspace_has_the_same_tree(repository: Path, store: SnapshotStore):
    """Two checkpoints of one state are equal and differ in nothing."""
    first, second = await store.take("r/before"), await store.take("r/after")
    assert first.tree == second.tree
    assert first.files == 3
    assert names(await store.diff(first.id, second.id)) == {}


async def test_two_of_one_state_are_two(repository: Path, store: SnapshotStore):
    """Checkpoints of one state, taken within a second, do not share what is known of each."""
    before = await store.take("r/before")
    after = await store.take("r/after", base=before.id)
    assert (await store.memo(before.id)).base is None
    assert (await store.memo(after.id)).base == before.id


async def test_a_store_that_lost_its_objects_is_filled_again(repository: Path, store: SnapshotStore):
    """Where the store's objects are gone, the files are read again: no checkpoint names what is not there."""
    trees = {(await store.take(label)).tree for label in ("r/one", "r/two")}
    shutil.rmtree(store.directory / "objects")
    for name in ("info", "pack"):
        (store.directory / "objects" / name).mkdir(parents=True)
    taken = await store.take("r/three")
    assert {taken.tree} == trees
    assert len(await store.blobs(taken.id)) == 3


async def test_changes_are_told_by_kind(repository: Path, store: SnapshotStore):
    """Added, modified, deleted and changed in kind are told apart, with counts of lines."""
    before = await store.take("r/before")
    (repository / "a.txt").write_text("one\nmore\n")
    (repository / "new").write_bytes(b"\0\1")
    (repository / "sub/b.txt").unlink()
    (repository / "run.sh").unlink()
    (repository / "run.sh").symlink_to("a.txt")
    diff = await store.diff(before.id, (await store.take("r/after", base=before.id)).id)
    assert names(diff) == {
        "a.txt": "modified",
        "new": "added",
        "sub/b.txt": "deleted",
        "run.sh": "typechange",
    }
    assert (diff.insertions, diff.deletions) == (2, 2)
    assert [change.path for change in diff.files if change.binary] == ["new"]


@pytest.mark.slow
async def test_same_size_within_one_tick_is_seen(workspace: Path, store: SnapshotStore):
    """A file written again at once, with the same length, is read again."""
    file = workspace / "f"
    trees = set()
    for i in range(10):
        file.write_text(str(i))
        trees.add((await store.take("r/x")).tree)
    assert len(trees) == 10


async def test_forged_times_are_seen(workspace: Path, store: SnapshotStore):
    """Setting the time of modification back hides nothing."""
    file = workspace / "f"
    file.write_text("a")
    status = file.stat()
    before = await store.take("r/before")
    file.write_text("b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (await store.take("r/after")).tree != before.tree


@pytest.mark.parametrize("name", slow_after(3, HOSTILE_NAMES), ids=repr)
async def test_any_name(name: bytes, workspace: Path, store: SnapshotStore):
    """Names of any bytes come through, in files and directories."""
    empty = await store.take("r/before")
    folder = os.fsencode(workspace) + b"/" + name
    os.mkdir(folder)
    Path(os.fsdecode(folder + b"/" + name)).write_text("x")
    after = await store.take("r/after", base=empty.id)
    assert [change.raw_path for change in (await store.diff(empty.id, after.id)).files] == [
        name + b"/" + name
    ]


async def test_a_checkpoint_in_between_hides_nothing(repository: Path, store: SnapshotStore):
    """What a run made is in its second checkpoint, though another one of the workspace was taken meanwhile."""
    before = await store.take("r/before")
    (repository / "made").write_text("by the run")
    await store.take("n/named")
    after = await store.take("r/after", base=before.id)
    assert names(await store.diff(before.id, after.id)) == {"made": "added"}


async def test_embedded_repositories_are_looked_into(repository: Path, store, git, commit_all):
    """Nothing hides in a repository within the workspace, nor in a submodule's directory."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "x").touch()
    tip = commit_all(inner)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{tip},linked")
    (repository / "linked").mkdir()
    (repository / "linked" / "y").touch()
    checkpoint = await store.take("r/x")
    assert {b"inner/x", b"linked/y"} <= {blob.path for blob in await store.blobs(checkpoint.id)}
    assert checkpoint.found.git_entries == {b"inner/.git"}


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A total limit that real files, without holes, reach within a second."""
    monkeypatch.setattr(capture, "TOTAL_LIMIT_BYTES", 1024**2)
    return 1024**2


async def test_too_much_is_refused(workspace: Path, store: SnapshotStore, small_limit: int):
    """A workspace beyond the total limit is a usage error that says what to do."""
    for number in range(5):
        (workspace / f"z{number:02}").write_bytes(b"z" * (small_limit // 4))
    with pytest.raises(UsageError, match="gitignore"):
        await store.take("r/x")


@pytest.mark.parametrize("kind", slow_after(2, ["fifo", "file", "link", "loop", "empty"]))
async def test_git_of_any_kind(kind: str, workspace: Path, store: SnapshotStore):
    """Whatever is called `.git`, the files are found."""
    git = workspace / ".git"
    match kind:
        case "fifo":
            os.mkfifo(git)
        case "file" | "loop":
            git.write_text("gitdir: /nowhere\n" if kind == "file" else "gitdir: .git\n")
        case "link":
            git.symlink_to("/etc")
        case _:
            git.mkdir()
    (workspace / "f").touch()
    with anyio.fail_after(20):
        assert (await store.take("r/x")).files == 1


async def test_damaged_index_and_cache(repository: Path, store: SnapshotStore):
    """A damaged index or cache costs time, not files."""
    good = await store.take("r/x")
    (repository / ".git" / "index").write_bytes(b"DIRC garbage")
    for file in (store.directory / "cache").iterdir():
        file.write_bytes(b"garbage")
    again = await store.take("r/y")
    assert again.tree == good.tree
    assert any("index" in note for note in again.notes)


async def test_upper_case_git_is_ordinary(workspace: Path, store: SnapshotStore):
    """`.GIT` is a name like any other here."""
    (workspace / ".GIT").mkdir()
    (workspace / ".GIT" / "config").touch()
    assert [blob.path for blob in await store.blobs((await store.take("r/x")).id)] == [b".GIT/config"]


@pytest.mark.slow
async def test_deep_nesting_ends(workspace: Path, store: SnapshotStore):
    """Thousands of nested directories neither hang nor crash a checkpoint."""
    (workspace / "f").touch()
    here = os.open(workspace, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        with anyio.fail_after(60):
            checkpoint = await store.take("r/x")
        assert checkpoint.files == 1
    finally:
        subprocess.run(["rm", "-rf", str(workspace / "d")], check=True)


async def test_gc_drops_other_runs(workspace: Path, store: SnapshotStore):
    """Checkpoints of runs that are kept stay, others are gone and say so."""
    (workspace / "f").write_text("old")
    old = await store.take("old/before")
    (workspace / "f").write_text("new")
    new = await store.take("new/before")
    assert await store.gc(frozenset({"new"})) == 1
    assert len(await store.blobs(new.id)) == 1
    with pytest.raises(RecordError, match="gc"):
        await store.memo(old.id)


async def test_of_a_clone_nothing_is_kept_but_the_checkpoint(
    workspace: Path, ground: Path, store: SnapshotStore, git
):
    """All files of a clone are read, and what is known of the workspace's own stays as it was."""
    clone = ground / "clone"
    for name in ("same", "other", "gone"):
        (workspace / name).write_text("1")
    before = await store.take("r/before")
    ((cache, data),) = [(path, path.read_bytes()) for path in (store.directory / "cache").iterdir()]
    shutil.copytree(workspace, clone)
    status = (clone / "other").stat()
    (clone / "other").write_text("2")
    os.utime(clone / "other", ns=(status.st_atime_ns, status.st_mtime_ns))
    (clone / "gone").unlink()
    (clone / "new").write_text("1")
    after = await store.take("r/after", base=before.id, root=clone)
    changed = {change.path: change.kind for change in (await store.diff(before.id, after.id)).files}
    assert changed == {"other": "modified", "gone": "deleted", "new": "added"}
    assert {path: path.read_bytes() for path in (store.directory / "cache").iterdir()} == {cache: data}
    kept = git(
        store.directory, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/ringfence-last/"
    )
    assert kept == f"{cache.name} {before.id}"
    assert (await store.take("r/again")).tree == before.tree


async def test_gc_forgets_clones(workspace: Path, store: SnapshotStore, git):
    """What version 0.1 kept of a clone goes; the workspace's own stays."""
    taken = await store.take("r/before")
    (own,) = (store.directory / "cache").iterdir()
    for name in (f"{own.name}.folders", "half.folders", "other", "other.folders"):
        own.with_name(name).touch()
    git(store.directory, "update-ref", "refs/ringfence-last/other", taken.id)
    await store.gc(frozenset({"r"}))
    assert list(own.parent.iterdir()) == [own]
    kept = git(store.directory, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/ringfence-last/")
    assert kept == own.name


async def test_two_at_once(workspace: Path, state: Path):
    """Two checkpoints of one workspace wait for each other."""
    (workspace / "f").touch()
    trees = []

    async def take(label: str) -> None:
        trees.append((await SnapshotStore(workspace, state).take(label)).tree)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(take, f"r{number}/before")
    assert len(set(trees)) == 1


async def test_cancelled_checkpoint_leaves_nothing(repository: Path, store, tmp_path: Path, monkeypatch):
    """A checkpoint that is cancelled half-way leaves no temporary directory, and the next one works."""
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.take, "r/x")
        while not list((tmp_path / "t").iterdir()):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert list((tmp_path / "t").glob("*/*")) == []
    assert (await store.take("r/x")).files == 3


async def test_label_is_checked(store: SnapshotStore):
    """A label cannot reach another part of the store."""
    with pytest.raises(UsageError):
        await store.take("../../heads/x")


async def test_unreadable_directory_is_told(workspace: Path, store: SnapshotStore):
    """A directory closed by an agent is a note, not a silent hole (root sees through it)."""
    (workspace / "d").mkdir()
    (workspace / "d" / "f").touch()
    (workspace / "d").chmod(0)
    checkpoint = await store.take("r/x")
    assert checkpoint.files == 1 if os.geteuid() == 0 else checkpoint.notes


async def test_packs_are_bounded(workspace: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch):
    """Many snapshots leave few packs, which git would open each time, and hold all contents all the same."""
    monkeypatch.setattr(objects, "_MAX_PACKS", 2)
    taken = []
    for number in range(4):
        for file in range(3):
            (workspace / f"f{file}").write_text(f"{number} {file}\n")
        taken.append((await store.take(f"r{number}/a")).id)
    assert len(list((store.directory / "objects" / "pack").glob("*.pack"))) == 2
    for number, snapshot in enumerate(taken):
        batches = [batch async for batch in store.contents(await store.blobs(snapshot))]
        held = {blob.path: data for batch in batches for blob, data in batch}
        assert {held[b"f%d" % file] for file in range(3)} == {
            b"%d %d\n" % (number, file) for file in range(3)
        }


async def test_a_first_snapshot_in_parts_is_whole(
    workspace: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
):
    """Files that are handed to git part by part, the next read while it works on the last, are all there."""
    monkeypatch.setattr(objects, "BATCH_BYTES", 5000)
    for file in range(40):
        (workspace / f"g{file}").write_text(f"{file}\n" * 300)
    one = await store.take("r/a")
    monkeypatch.undo()
    other = await SnapshotStore(workspace, store.directory.parent.parent / "other").take("r/a")
    assert (one.tree, one.files) == (other.tree, other.files)


async def test_a_store_that_cannot_be_written_is_named(repository: Path, store: SnapshotStore):
    """A full disk, or a state directory that somebody changed, is no error without words."""
    await store.take("r/before")
    (repository / ".gitignore").write_text("*.log\n")
    (repository / "new.log").touch()
    (store.directory / "info" / "exclude").mkdir()
    with pytest.raises(InfrastructureFault, match=f"{store.directory.name}.*see to the free space"):
        await store.take("r/after")


async def test_a_sparse_index_below_a_name_with_a_newline(tmp_path: Path, git):
    """Git reads the directories of a sparse index, wherever the repository lies."""
    repository = tmp_path / "new\nline"
    for folder in ("kept", "sparse"):
        (repository / folder).mkdir(parents=True)
        (repository / folder / "file").write_text(folder)
    git(repository, "init", "--quiet")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "first")
    git(repository, "sparse-checkout", "set", "--cone", "--sparse-index", "kept")
    (repository / ".gitignore").write_text("sparse\n")
    (repository / "sparse").mkdir(exist_ok=True)
    (repository / "sparse" / "file").write_text("changed")
    store = SnapshotStore(repository, tmp_path / "state")
    taken = await store.take("r/before")
    assert b"sparse/file" in {blob.path for blob in await store.blobs(taken.id)}


@pytest.mark.parametrize("is_last", [True, False], ids=["its stat cache is there", "a later one was taken"])
async def test_files_that_changed_in_a_clone_are_named_without_a_checkpoint(
    workspace: Path, store: SnapshotStore, tmp_path: Path, *, is_last: bool
):
    """Whatever became of a file: other contents or rights, a directory, a pipe, a link out of the clone, nothing."""
    changed = ("text", "longer", "mode", "folder", "pipe", "link", "gone", "closed/file")
    for name in ("same", "closed/same", *changed):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).write_text("before")
    (workspace / "old").symlink_to("same")
    before, clone = await store.take("r/before"), tmp_path / "clone"
    shutil.copytree(workspace, clone, symlinks=True)
    (clone / "text").write_text("behind")
    (clone / "longer").write_text("before and after")
    (clone / "mode").chmod(0o755)
    for name in ("folder", "pipe", "link", "gone", "closed/file"):
        (clone / name).unlink()
    (clone / "folder").mkdir()
    os.mkfifo(clone / "pipe")
    (clone / "link").symlink_to(workspace / "same")
    (clone / "new").touch()
    (clone / "closed").chmod(0)
    if not is_last:
        (workspace / "same").write_text("later")
        await store.take("r/later")
    kept = [one.label for one in await store.kept()]
    assert await store.files_changed_in(clone, before.id) == {os.fsencode(name) for name in changed}
    assert [one.label for one in await store.kept()] == kept


async def test_a_pipe_that_a_clone_has_in_place_of_a_file_is_not_opened(
    workspace: Path, store: SnapshotStore, tmp_path: Path
):
    """Whoever waits to write to the pipe still waits after the comparison."""
    (workspace / "file").touch()
    before, clone = await store.take("r/before"), tmp_path / "clone"
    clone.mkdir()
    os.mkfifo(clone / "file")
    waiting = subprocess.Popen(
        ["sh", "-c", f"echo ready; : > {shlex.quote(str(clone / 'file'))}"], stdout=subprocess.PIPE
    )
    try:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"ready\n"
        await anyio.sleep(0.3)
        assert b"file" in await store.files_changed_in(clone, before.id)
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.3)
    finally:
        waiting.kill()
        waiting.communicate()
