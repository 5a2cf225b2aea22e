"""Submodules in mode `bind`, in a real fence."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.sandbox.workspace.git.sandboxes import fence, open_at, shell
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox.workspace.git.layout import find_git
from ringfence.sandbox.workspace.run import RunWorkspace

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
_ADD = ("-c", "protocol.file.allow=always", "submodule", "add", "-q")


@pytest.fixture
def module(ground: Path, git, commit_all) -> Path:
    """A repository for use as a submodule, which has a submodule itself."""
    for name in ("inner", "module"):
        (ground / name).mkdir()
        git(ground / name, "init", "-q")
        (ground / name / "code").write_text("one\n")
        commit_all(ground / name)
    git(ground / "module", *_ADD, str(ground / "inner"), "deep/inner")
    commit_all(ground / "module")
    return ground / "module"


@pytest.fixture
def above(repository: Path, module: Path, git, commit_all) -> Path:
    """A repository with a submodule `lib`, which has another one."""
    git(repository, *_ADD, str(module), "lib")
    git(repository, "-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
    commit_all(repository)
    return repository


async def start(workspace: Path, state: Path, own) -> RunWorkspace:
    """Prepare a run in mode `bind`."""
    if os.geteuid() == 0:
        own(workspace)
    return await prepare(workspace, "bind", run="run-1", run_dir=state / "runs" / "run-1", state=state)


def modules(above: Path) -> bytes:
    """A listing of the user's git directory, with the submodules'."""
    return subprocess.run(["ls", "-lRi", above / ".git"], capture_output=True, check=True).stdout


async def test_git_works_in_and_above_submodules(above: Path, state: Path, own, git):
    """Status, add and commit work in a submodule, in a nested one and above them, and all commits are imported."""
    prepared = await start(above, state, own)
    before = modules(above)
    async with fence(prepared) as sandbox:
        assert await shell(sandbox, "git status --porcelain; git submodule status --recursive >&2") == ""
        for place in ("lib/deep/inner", "lib", "."):
            await shell(sandbox, f"cd {place}; echo two > code; git add -A; git commit -qm inside")
        assert await shell(sandbox, "git status --porcelain; git fsck --strict 2>&1") == ""
    assert modules(above) == before
    done = await prepared.deliver(open_at)
    gitlink = git(above, "rev-parse", "refs/ringfence/run-1/main:lib")
    assert git(above / "lib", "log", "-1", "--format=%s", gitlink) == "inside"
    inner = git(above / "lib", "rev-parse", f"{gitlink}:deep/inner")
    assert git(above / "lib/deep/inner", "show", f"{inner}:code") == "two"
    assert [note.partition(":")[0] for note in done.notes] == [
        "submodule 'lib'",
        "submodule 'lib/deep/inner'",
    ]


async def test_submodules_below_a_linked_work_tree(above: Path, state: Path, ground: Path, own, git):
    """Submodules work in a linked work tree, too."""
    git(above, "worktree", "add", "-q", "../linked")
    update = ("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
    git(ground / "linked", *update)
    if os.geteuid() == 0:
        own(above)
    prepared = await start(ground / "linked", state, own)
    assert prepared.notes == ()
    async with fence(prepared) as sandbox:
        await shell(sandbox, "cd lib; echo two > code; git commit -qam inside; cd ..; git commit -qam inside")
    done = await prepared.deliver(open_at)
    assert set(done.record.refs) == {"refs/ringfence/run-1/linked"}


@pytest.mark.parametrize(
    "attack",
    [
        "mv lib gone",
        "rm lib/.git",
        "echo x > lib/.git",
        "mv /run/ringfence-submodules/0 x",
        "echo x > /run/ringfence-submodules/0/base-objects-0/evil",
    ],
)
async def test_git_directories_of_submodules_cannot_be_changed(attack: str, above: Path, state: Path, own):
    """A submodule's git directory, and the file that names it, cannot be changed, renamed or removed."""
    prepared = await start(above, state, own)
    before = modules(above)
    async with fence(prepared) as sandbox:
        assert not (await sandbox.run(["sh", "-c", attack], timeout_s=10)).ok
    assert modules(above) == before
    assert (above / "lib" / ".git").read_text().startswith("gitdir: ../.git/modules/lib")


async def test_repository_elsewhere_is_no_submodule(above: Path, state: Path, ground: Path, own, git):
    """A `.git` file that names a repository elsewhere is not followed, even if that names it in turn."""
    git(ground, "init", "-q", "--separate-git-dir", str(ground / "elsewhere"), str(above / "evil"))
    git(above / "evil", "config", "core.worktree", str(above / "evil"))
    if os.geteuid() == 0:
        own(ground / "elsewhere")
        own(above)
    assert find_git(above / "evil") is not None
    prepared = await start(above, state, own)
    assert [module.place for module in prepared.workspace.repositories[1:]] == ["lib", "lib/deep/inner"]
    async with fence(prepared) as sandbox:
        assert not (await sandbox.run(["git", "-C", "evil", "status"], timeout_s=10)).ok


async def test_sabotaged_submodule_does_not_affect_others(above: Path, state: Path, own):
    """An agent that empties a submodule's git directory loses its commits in that submodule, and nothing else."""
    prepared = await start(above, state, own)
    async with fence(prepared) as sandbox:
        await shell(sandbox, "echo x > new; git add new; git commit -qm inside")
        await shell(sandbox, "rm -rf /run/ringfence-submodules/0/* 2>/dev/null || true")
    done = await prepared.deliver(open_at)
    assert set(done.record.refs) == {"refs/ringfence/run-1/main"}
