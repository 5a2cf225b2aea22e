"""`Sandbox.open` without a run gives what a run gives: one writer, a private git, a private copy that comes back."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.errors import SandboxDied, UsageError
from ringfence.job.garbage_collection import abandoned_directories
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.workspace.protect.repositories import why_untrusted
from ringfence.sandbox.workspace.restore import WorkspaceConflict
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

TOKEN = "https://user:hunter2@example.com/x.git"
Git = Callable[..., str]


@pytest.fixture(autouse=True)
def own_state(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory of the test's own."""
    state.mkdir(mode=0o700)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(state))


@pytest.fixture
def theirs(repository: Path, git: Git, own: Callable[..., None]) -> Path:
    """A user's repository with a token in the address of a remote."""
    git(repository, "remote", "add", "origin", TOKEN)
    if os.geteuid() == 0:
        own(repository)
    return repository


async def test_a_commit_inside_is_not_the_users(theirs: Path, git: Git) -> None:
    """Git works inside, on a directory that goes with the sandbox; the user's refs are as they were."""
    before = git(theirs, "for-each-ref"), git(theirs, "rev-parse", "HEAD")
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=theirs)) as sandbox:
        made = await sandbox.run(["sh", "-c", "echo x > new && git add new && git commit -qm new"])
        assert made.ok, made.stderr
    assert (git(theirs, "for-each-ref"), git(theirs, "rev-parse", "HEAD")) == before
    assert (theirs / "new").exists()


async def test_a_repository_made_inside_is_not_used_later(theirs: Path, state: Path) -> None:
    """One below the workspace is an agent's, also where the agent closed the way, and as a workspace of its own."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=theirs)) as sandbox:
        made = "git init -q sub/app; git init -q shut/app; chmod 000 shut"
        assert (await sandbox.run(["sh", "-c", made])).ok
    (theirs / "shut").chmod(0o755)
    for place in ("sub", "shut"):
        assert "made by run" in (why_untrusted(theirs / place / "app", state) or "")


@pytest.fixture
def cloned(theirs: Path) -> SandboxSpec:
    """A private copy of it."""
    return SandboxSpec(backend="bubblewrap", workspace=theirs, mode="clone")


async def test_a_private_copy_is_brought_back_on_request(
    cloned: SandboxSpec, theirs: Path, state: Path
) -> None:
    """Nothing reaches the workspace before `apply`; what was kept for it goes with the sandbox."""
    async with Sandbox.open(cloned) as sandbox:
        assert (await sandbox.run(["sh", "-c", "echo two > a.txt; echo x > .envrc; ls .git/HEAD"])).ok
        changes = await sandbox.changes()
        assert [(file.path, file.kind) for file in changes.files] == [
            (".envrc", "added"),
            ("a.txt", "modified"),
        ]
        assert (changes.runs_on_your_machine, b"+two" in changes.patch) == ((".envrc",), True)
        assert (theirs / "a.txt").read_text() == "one\n"
        with pytest.raises(SandboxDied, match="it was closed"):
            await sandbox.run(["true"])
        await sandbox.apply()
    assert (theirs / "a.txt").read_text() == "two\n"
    assert list((state / "tmp").iterdir()) == []
    assert await SnapshotStore(theirs, state).kept() == []


async def test_what_changed_meanwhile_is_not_overwritten(cloned: SandboxSpec, theirs: Path) -> None:
    """A file that somebody changed since is a conflict, unless it is forced."""
    async with Sandbox.open(cloned) as sandbox:
        await sandbox.run(["sh", "-c", "echo two > a.txt"])
        (theirs / "a.txt").write_text("mine\n")
        with pytest.raises(WorkspaceConflict, match=r"a\.txt"):
            await sandbox.apply()
        assert (theirs / "a.txt").read_text() == "mine\n"
        await sandbox.apply(force=True)
    assert (theirs / "a.txt").read_text() == "two\n"


async def test_without_a_private_copy_there_is_nothing_to_bring_back(theirs: Path) -> None:
    """In another mode `changes` and `apply` are errors, and end nothing."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=theirs)) as sandbox:
        for call in (sandbox.changes, sandbox.apply):
            with pytest.raises(UsageError, match="mode='clone'"):
                await call()
        assert (await sandbox.run(["true"])).ok


async def test_gc_leaves_a_living_copy_alone(cloned: SandboxSpec, state: Path) -> None:
    """Directories and snapshots of sandboxes without a run are not taken for a dead process's."""
    async with Sandbox.open(cloned) as sandbox:
        (directory,) = (state / "tmp").iterdir()
        os.utime(directory, (0, 0))
        assert abandoned_directories(3600) == []
        await sandbox.changes()
        (left := state / "tmp" / "sandbox-left").mkdir()
        os.utime(left, (0, 0))
        assert abandoned_directories(3600) == [left]
