"""A look over a whole tree that misses nothing silently, whatever was laid there for it to stumble on."""

import os
import socket
from pathlib import Path

import pytest
from tests.cases import slow_but
from tests.sandbox.workspace.runs import prepare

from ringfence.errors import PolicyRefused
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.record import diff_run, open_store, undo_run
from ringfence.sandbox.workspace.run import RunWorkspace
from ringfence.sandbox.workspace.snapshot import walk as module
from ringfence.sandbox.workspace.snapshot.walk import walk

pytestmark = pytest.mark.anyio


@pytest.fixture
def mine(repository: Path, own) -> Path:
    """A repository that a run works on itself, also root's."""
    if os.geteuid() == 0:
        own(repository, 1500)
    return repository


def begin(workspace: Path, state: Path, *, run: str = "run-1", mode: str = "bind"):
    """Prepare a run."""
    return prepare(workspace, mode, run=run, run_dir=state / "runs" / run, state=state)  # type: ignore[arg-type]


def make_below(top: Path, depth: int, count: int, name: str = "x" * 240) -> None:
    """Many empty directories at the end of one long path."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    for number in range(count):
        os.mkdir(str(number), dir_fd=here)
    os.close(here)


def last_listed(workspace: Path, *before: str) -> Path:
    """A new directory's path that is looked into before those named, the last one listed being the first."""
    for number in range(1000):
        path = workspace / f"build{number}"
        path.mkdir()
        names = [inner.name for inner in workspace.iterdir()]
        path.rmdir()
        if all(names.index(path.name) > names.index(name) for name in before):
            return path
    raise AssertionError("no name is listed after the others")


def test_long_paths_use_nothing_up(mine: Path, git, monkeypatch):
    """Empty directories, however long their paths are together, hide neither a socket nor a repository."""
    for bound in ("MAX_NAMES_BYTES", "_MAX_PENDING_BYTES"):
        monkeypatch.setattr(module, bound, 256 * 1024)
    (mine / "run").mkdir()
    git(mine, "init", "-q", "lib")
    make_below(last_listed(mine, "run", "lib"), 15, 200)  # their paths have 730 KiB
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(mine / "run" / "s"))
        found = walk(mine, gathers=False)
    assert (found.specials, found.git_entries, found.blindness) == ({b"run/s"}, {b"lib/.git"}, "")


def test_too_many_files_hide_no_socket(mine: Path, monkeypatch):
    """Sockets and repositories are found even where the names of files exceed their bound."""
    monkeypatch.setattr(module, "MAX_NAMES_BYTES", 0)
    for number in range(10):
        (mine / "sub" / str(number)).touch()
    os.mkfifo(mine / "sub" / "fifo")
    found = walk(mine)
    assert (found.specials, found.is_cut, found.blindness) == ({b"sub/fifo"}, True, "")


@pytest.mark.parametrize("mode", slow_but(["bind"], ["bind", "read_only"]))
async def test_a_cut_look_is_refused(mode: str, mine: Path, state: Path, monkeypatch):
    """A workspace that has too many entries to be searched is refused, with the directory to remove."""
    (mine / "build").mkdir()
    for number in range(100):
        (mine / "build" / str(number)).mkdir()
    monkeypatch.setattr(module, "MAX_ENTRIES", 60)
    with pytest.raises(PolicyRefused, match=r"entries of it below 'build'.*mode 'clone'") as caught:
        await begin(mine, state, mode=mode)
    assert caught.value.rule == "workspace-unseen"


@pytest.mark.slow
async def test_a_cut_look_is_cloned(mine: Path, state: Path, monkeypatch):
    """Such a workspace is cloned, and the first note says that it was not searched completely."""
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    prepared = await begin(mine, state, mode="clone")
    assert "was searched" in prepared.notes[0] or "were searched" in prepared.notes[0]


@pytest.mark.slow
async def test_what_is_not_told_is_told_first(mine: Path, state: Path, monkeypatch):
    """That there may be more changes is the first line of those that are not kept."""
    prepared = await begin(mine, state)
    for name in ("!first", "#second"):
        os.mkfifo(mine / name)
    make_below(mine / "deep", 0, 30)
    monkeypatch.setattr(module, "MAX_ENTRIES", 5)
    monkeypatch.setattr(module, "_MAX_NAMED", 0)
    done = await prepared.deliver(None)
    unkept = (await diff_run(done.record, open_store(done.record, state))).unkept
    assert (unkept[0].path, unkept[0].kind) == ("./", "unseen")


@pytest.mark.slow
async def test_too_deep_is_refused(mine: Path, state: Path):
    """Directories that are nested deeper than is looked could hold a socket: they are named, and the run refused."""
    make_below(mine / "deep", 300, 0, name="d")
    with pytest.raises(PolicyRefused, match=r"'deep/d.*directories deep, remove it"):
        await begin(mine, state)


@pytest.mark.slow
async def test_undo_removes_what_the_next_run_is_refused_for(mine: Path, state: Path):
    """More sockets than can be covered, left by a run, are refused; its undo lets the next one start."""
    first = await begin(mine, state)
    for number in range(201):
        os.mkfifo(mine / f".f{number}")
    done = await first.deliver(None)
    with pytest.raises(PolicyRefused, match=r"`ringfence undo` does") as caught:
        await begin(mine, state, run="run-2")
    assert caught.value.rule == "too-many-sockets"
    await undo_run(done.record, state)
    await begin(mine, state, run="run-3")


def test_sockets_deep_in_a_git_directory(mine: Path, git):
    """What listens anywhere in a git directory is found."""
    git(mine, "init", "-q", "lib")
    for place in (mine / ".git" / "a" / "b", mine / "lib" / ".git" / "worktrees" / "w"):
        place.mkdir(parents=True)
        os.mkfifo(place / "s")
    assert walk(mine).specials == {b".git/a/b/s", b"lib/.git/worktrees/w/s"}


async def inside(prepared: RunWorkspace, workspace: Path, script: str) -> bool:
    """Whether a script succeeds in a sandbox of the run."""
    spec = SandboxSpec(backend="bubblewrap", workspace=workspace)
    async with Sandbox.start(spec, placement=prepared.placement) as sandbox:
        return (await sandbox.run(["sh", "-c", script], timeout_s=30)).ok


@pytest.mark.parametrize("guarded", slow_but(["lib/.git"], ["lib/.git", ".vscode"]))
async def test_a_cover_opens_nothing(guarded: str, mine: Path, state: Path, own):
    """Covering a socket in a read-only directory does not make that directory writable."""
    (mine / guarded / "deep" / "er").mkdir(parents=True)
    os.mkfifo(mine / guarded / "deep" / "er" / "s")
    if os.geteuid() == 0:
        own(mine, 1500)
    prepared = await begin(mine, state)
    assert not await inside(prepared, mine, f"touch {guarded}/deep/new || touch {guarded}/deep/er/new")
    assert await inside(prepared, mine, f"test -c {guarded}/deep/er/s")


async def test_what_is_shut_stays_shut(mine: Path, state: Path, own):
    """A directory that its owner closed cannot be opened from inside."""
    (mine / "shut").mkdir()
    if os.geteuid() == 0:
        own(mine, 1500)
    (mine / "shut").chmod(0)
    prepared = await begin(mine, state)
    assert await inside(prepared, mine, "test -d shut")
    assert not await inside(prepared, mine, "chmod 700 shut || mv shut away")


async def test_a_sandbox_without_a_run_guards_repositories(mine: Path, git, own):
    """A sandbox that is opened on a workspace without a run mounts repositories within it read-only as well."""
    git(mine, "init", "-q", "lib")
    if os.geteuid() == 0:
        own(mine, 1500)
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=mine, mode="bind")) as sandbox:
        assert not (await sandbox.run(["touch", "lib/.git/config"], timeout_s=30)).ok


@pytest.mark.slow
async def test_what_git_takes_for_a_repository_is_flagged(mine: Path, state: Path):
    """A directory with what makes a repository is flagged, though it is ignored and not called `.git`."""
    (mine / ".gitignore").write_text("build/\n")
    (mine / "build").mkdir()
    prepared = await begin(mine, state)
    for name in ("objects", "refs"):
        (mine / "build" / name).mkdir()
    for name in ("HEAD", "config"):
        (mine / "build" / name).touch()
    done = await prepared.deliver(None)
    assert {"build/HEAD", "build/config"} <= set(done.runs_on_your_machine)
