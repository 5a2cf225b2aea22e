"""Whatever state an agent leaves a workspace in, the run ends in order, tells what it can, and can be undone."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.cases import slow_but
from tests.sandbox.workspace.git.sandboxes import open_at
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.record import undo_run
from ringfence.sandbox.workspace.run import Finished, RunWorkspace
from ringfence.sandbox.workspace.snapshot import walk
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio

_BOUND_S = 30.0


@pytest.fixture
def mine(repository: Path, own) -> Path:
    """A repository that a run works on itself, also root's."""
    if os.geteuid() == 0:
        own(repository, 1500)
    return repository


Begin = Callable[[], Awaitable[RunWorkspace]]


@pytest.fixture
def begin(mine: Path, state: Path) -> Begin:
    """Prepares a run on the workspace itself."""

    async def prepared() -> RunWorkspace:
        return await prepare(mine, "bind", run="run-1", run_dir=state / "runs" / "run-1", state=state)

    return prepared


async def end(prepared: RunWorkspace) -> Finished:
    """End the run within a bound."""
    with anyio.fail_after(_BOUND_S):
        return await prepared.deliver(None)


def as_owner(workspace: Path) -> None:
    """Give what the test made to whom the agent runs as."""
    if os.geteuid() == 0:
        for folder, folders, names in os.walk(workspace):
            for name in (*folders, *names):
                os.chown(Path(folder, name), 1500, 1500, follow_symlinks=False)


SHUT: dict[str, Callable[[Path], Path]] = {
    "the workspace": lambda w: w,
    "a directory": lambda w: w / "sub",
    "a file": lambda w: w / "a.txt",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", slow_but(["a directory"], SHUT))
async def test_rights_that_were_taken_away(what: str, mine: Path, begin, state: Path):
    """If an agent removes the owner's permissions, its changes are still reported, and undone."""
    prepared = await begin()
    (mine / "a.txt").write_text("agent\n")
    (mine / "sub" / "b.txt").write_text("agent\n")
    SHUT[what](mine).chmod(0)
    done = await end(prepared)
    assert {change.path for change in done.diff.files} == {"a.txt", "sub/b.txt"}
    assert any("restored the owner's permissions" in note for note in done.notes)
    await undo_run(done.record, state)
    assert ((mine / "a.txt").read_text(), (mine / "sub" / "b.txt").read_text()) == ("one\n", "two\n")


@pytest.mark.slow
async def test_commits_come_out_all_the_same(mine: Path, begin: Begin):
    """Commits come out although the agent removed permissions on the workspace and on what is mounted in it."""
    (mine / ".github" / "workflows").mkdir(parents=True)
    as_owner(mine)
    prepared = await begin()
    spec = SandboxSpec(backend="bubblewrap", workspace=mine)
    script = "echo agent >a.txt && git commit -qam x && chmod 0 .github sub . "
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        assert (await sandbox.run(["sh", "-c", script], timeout_s=30)).ok
    done = await prepared.deliver(open_at)
    assert list(done.record.refs) == ["refs/ringfence/run-1/main"]
    assert "'.'" in done.notes[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what is another user's")
async def test_what_stays_closed_is_named(mine: Path, begin, state: Path):
    """A directory whose permissions cannot be restored is named with the reason, and the other changes are reported."""
    prepared = await begin()
    (mine / "a.txt").write_text("agent\n")
    (mine / "others").mkdir(mode=0)
    done = await end(prepared)
    assert [change.path for change in done.diff.files] == ["a.txt"]
    assert done.after.found.skipped == {b"others/": "the directory cannot be read: permission denied"}
    await undo_run(done.record, state)
    assert (mine / "a.txt").read_text() == "one\n"


def huge(path: Path) -> None:
    """A file of rules as long as a file can be."""
    with path.open("wb") as file:
        file.truncate(1024**4)


RULES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "huge": huge,
    "loop": lambda path: path.symlink_to(path.name),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "pathological": lambda path: path.write_text("\n".join(["*a" * 60 + "b"] * 200)),
    "spaces": lambda path: path.write_text("a" + " " * 200_000 + "b"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(["fifo", "endless"], RULES))
async def test_strange_rules(kind: str, mine: Path, begin, state: Path):
    """Whatever an agent leaves as `.gitignore`, the run ends in time, and is undone."""
    prepared = await begin()
    (mine / "a.txt").write_text("agent\n")
    for folder in (mine, mine / "sub"):
        RULES[kind](folder / ".gitignore")
    as_owner(mine)
    done = await end(prepared)
    assert "a.txt" in {change.path for change in done.diff.files}
    with anyio.fail_after(_BOUND_S):
        await undo_run(done.record, state)
    assert (mine / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("kind", ["fifo", "directory", "huge", "loop", "endless", "spaces"])
@pytest.mark.slow
async def test_strange_rules_before_the_next_run(kind: str, mine: Path, begin):
    """Whatever lies there as `.gitignore`, the next run starts in time, and rules in ordinary files hold."""
    (mine / ".gitignore").write_text("*.log\n")
    (mine / "x.log").touch()
    RULES[kind](mine / "sub" / ".gitignore")
    as_owner(mine)
    with anyio.fail_after(_BOUND_S):
        prepared = await begin()
    paths = {blob.path async for blob in blobs(prepared)}
    assert {b"a.txt", b"sub/b.txt", b".gitignore"} <= paths
    assert b"x.log" not in paths


async def blobs(prepared: RunWorkspace):
    """Files of the checkpoint before a run."""
    store = SnapshotStore(Path(prepared.record.workspace), prepared.workspace.state)
    for blob in await store.blobs(prepared.before.id):
        yield blob


@pytest.mark.parametrize("name", slow_but(["HEAD"], ["HEAD", "commondir"]))
async def test_fifo_in_a_repository_within(name: str, mine: Path, begin):
    """A nested repository with a fifo in place of a file does not block the next run."""
    (mine / "inner").mkdir()
    (mine / "inner" / "file").touch()
    inner = mine / "inner" / ".git"
    for folder in ("objects", "refs"):
        (inner / folder).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / name).unlink(missing_ok=True)
    os.mkfifo(inner / name)
    as_owner(mine)
    with anyio.fail_after(_BOUND_S):
        prepared = await begin()
    assert b"inner/file" in {blob.path async for blob in blobs(prepared)}


def in_deep_folder(root: Path, count: int) -> None:
    """Many files with the longest of paths."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(15):
        os.mkdir("d" * 250, dir_fd=here)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    for number in range(count):
        os.close(os.open(f"{number:0250}", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    if os.geteuid() == 0:
        os.fchown(here, 1500, 1500)
    os.close(here)


@pytest.mark.any_user  # a bound on their number, which others keep as everybody
async def test_more_names_than_are_looked_at(mine: Path, begin, state: Path, monkeypatch: pytest.MonkeyPatch):
    """Of files with the longest of paths those beyond a bound are named, and the others are reported and undone."""
    monkeypatch.setattr(walk, "MAX_NAMES_BYTES", 1024**2)
    prepared = await begin()
    (mine / "a.txt").write_text("agent\n")
    in_deep_folder(mine, 400)  # their paths have 1.6 MiB
    as_owner(mine)
    done = await prepared.deliver(None)
    assert "a.txt" in {change.path for change in done.diff.files}
    assert set(done.after.found.skipped.values()) == {"beyond the number of files that are looked at"}
    await undo_run(done.record, state)
    assert (mine / "a.txt").read_text() == "one\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(["fifo"], ["fifo", "large", "directory with a fifo"]))
async def test_something_else_in_the_place_of_a_file(kind: str, mine: Path, begin, state: Path):
    """Undo replaces fifos and huge files that an agent put in the place of a file or directory."""
    prepared = await begin()
    (mine / "sub" / "b.txt").unlink()
    (mine / "sub").rmdir()
    (mine / "a.txt").unlink()
    if kind == "fifo":
        os.mkfifo(mine / "sub")
        os.mkfifo(mine / "a.txt")
    elif kind == "large":
        huge(mine / "sub")
        huge(mine / "a.txt")
    else:
        (mine / "a.txt").mkdir()
        os.mkfifo(mine / "a.txt" / "fifo")
    as_owner(mine)
    done = await end(prepared)
    await undo_run(done.record, state)
    assert ((mine / "a.txt").read_text(), (mine / "sub" / "b.txt").read_text()) == ("one\n", "two\n")


@pytest.mark.slow
async def test_shut_before_stays_shut(mine: Path, begin):
    """A directory that was closed before the run is neither opened nor searched."""
    (mine / "closed").mkdir()
    (mine / "closed" / "f").touch()
    as_owner(mine)
    (mine / "closed").chmod(0)
    done = await end(await begin())
    assert ((mine / "closed").stat().st_mode & 0o777, done.diff.files) == (0, ())


REWRITE = """
import mmap, os
with mmap.mmap(os.open("tool", os.O_RDWR), 0) as file:
    file[:] = b"agent's"
"""


async def test_changed_set_id_files_are_disarmed(mine: Path, begin: Begin, state: Path):
    """A set-id file that an agent wrote to by a mapping, which leaves the bits, has none after the run, and is named."""
    for name in ("tool", "other"):
        (mine / name).write_text("user's!")
    as_owner(mine)
    for name in ("tool", "other"):
        (mine / name).chmod(0o6755)
    prepared = await begin()
    spec = SandboxSpec(backend="bubblewrap", workspace=mine)
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        assert (await sandbox.run(["python3", "-c", REWRITE], timeout_s=30)).ok
    done = await end(prepared)
    assert (mine / "tool").read_text() == "agent's"
    assert [oct((mine / name).stat().st_mode & 0o7777) for name in ("tool", "other")] == ["0o755", "0o6755"]
    assert [note for note in done.notes if "set-user-ID" in note] == [
        "changed, and no longer set-user-ID or set-group-ID: 'tool'"
    ]
    await undo_run(done.record, state)
    assert oct((mine / "tool").stat().st_mode & 0o7777) == "0o755"
