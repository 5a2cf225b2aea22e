"""The private git directory with all its objects, for engines that cannot mount the user's object database."""

from pathlib import Path

import pytest
from tests.sandbox.workspace.conftest import run_git
from tests.sandbox.workspace.git.sandboxes import fence, open_at, shell
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox.workspace.run import RunWorkspace

pytestmark = pytest.mark.anyio


async def carried(workspace: Path, state: Path) -> RunWorkspace:
    """Prepare a run on a clone that is to be uploaded."""
    run_dir = state / "runs" / "run-1"
    return await prepare(
        workspace, None, run="run-1", run_dir=run_dir, state=state, unseen="the engine is elsewhere"
    )


def git_of(prepared: RunWorkspace) -> Path:
    """The git directory that is uploaded."""
    assert prepared.placement.workspace_source is not None
    return prepared.placement.workspace_source / ".git"


async def test_git_directory_is_complete(repository: Path, state: Path) -> None:
    """It needs no other object database, and git finds no object missing in it."""
    prepared = await carried(repository, state)
    assert prepared.placement.is_downloaded
    assert (prepared.placement.upload, prepared.placement.mounts) == ("all", ())
    assert not (git_of(prepared) / "objects/info/alternates").exists()
    run_git(git_of(prepared), "--git-dir=.", "fsck", "--full", "--strict")
    assert run_git(git_of(prepared), "--git-dir=.", "log", "--format=%s") == "work"


async def test_commits_are_imported(repository: Path, state: Path) -> None:
    """A commit that is made on it is imported into the user's repository."""
    prepared = await carried(repository, state)
    async with fence(prepared) as sandbox:
        await shell(sandbox, "echo two > new; git add new; git commit -qm second")
    (commit,) = (await prepared.deliver(open_at)).record.refs.values()
    assert run_git(repository, "log", "--format=%s", commit) == "second\nwork"


async def test_only_refs_that_head_reaches(repository: Path, state: Path) -> None:
    """Branches and tags that HEAD reaches are there; others are not, whatever names say, and a note counts them."""
    run_git(repository, "tag", "-am", "told", "annotated")
    run_git(repository, "branch", "merged")
    run_git(repository, "branch", "merged\u2028refs/heads/other")
    run_git(repository, "checkout", "-qb", "other")
    run_git(repository, "commit", "-q", "--allow-empty", "-m", "other")
    run_git(repository, "checkout", "-q", "-")
    prepared = await carried(repository, state)
    names = run_git(git_of(prepared), "--git-dir=.", "for-each-ref", "--format=%(refname:short)").split()
    assert ("annotated" in names, "merged" in names, "other" in names) == (True, True, False)
    assert any("1 branches and tags" in note for note in prepared.notes)


async def test_staged_contents_are_there(repository: Path, state: Path) -> None:
    """Contents that are only in the index can be read."""
    (repository / "staged").write_text("only here\n")
    run_git(repository, "add", "staged")
    prepared = await carried(repository, state)
    assert run_git(git_of(prepared), "--git-dir=.", "show", ":staged") == "only here"


async def test_before_the_first_commit(tmp_path: Path, state: Path) -> None:
    """A repository without a commit is one without a commit inside, too."""
    (tmp_path / "fresh").mkdir()
    run_git(tmp_path / "fresh", "init", "-q")
    prepared = await carried(tmp_path / "fresh", state)
    assert run_git(git_of(prepared), "--git-dir=.", "for-each-ref") == ""
    assert run_git(git_of(prepared), "--git-dir=.", "symbolic-ref", "HEAD") == "refs/heads/main"


async def test_a_linked_work_tree(repository: Path, tmp_path: Path, state: Path) -> None:
    """A linked work tree, whose git directory is elsewhere, gets a git directory of its own."""
    run_git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    prepared = await carried(tmp_path / "side", state)
    assert run_git(git_of(prepared), "--git-dir=.", "symbolic-ref", "HEAD") == "refs/heads/side"
    run_git(git_of(prepared), "--git-dir=.", "fsck", "--full")
