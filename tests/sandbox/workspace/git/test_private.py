"""The `.git` that an agent sees in a real fence, and the files that it cannot reach."""

import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from tests.sandbox.workspace.git.sandboxes import fence, open_at, shell
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox.workspace.run import RunWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["bind", "clone"])
def ready(request, state: Path, own) -> Callable[..., Awaitable[RunWorkspace]]:
    """A function that prepares a run in the mode of the parameter; as root, mode `bind` is on a user's workspace."""

    async def make(workspace: Path, run: str = "run-1", beside: Iterable[Path] = ()) -> RunWorkspace:
        for path in (workspace, *beside) if os.geteuid() == 0 and request.param == "bind" else ():
            own(path)
        return await prepare(workspace, request.param, run=run, run_dir=state / "runs" / run, state=state)

    return make


@pytest.mark.parametrize(
    "attack",
    [
        "mv .git elsewhere",
        "rm -rf .git",
        "echo x > .git/base-objects-0/evil",
        "mv sub/inner/.git sub/inner/x",
        "echo x > sub/inner/.git/config",
        "mv sub gone",
        "mv .github gone",
        "echo x > .github/workflows/ci.yml",
        "echo x > .envrc",
        "rm .envrc",
    ],
)
@pytest.mark.slow
async def test_git_and_protected_files_cannot_be_changed(
    attack: str, repository: Path, state: Path, own, git
):
    """The user's git directory and auto-executed files cannot be changed, renamed or removed."""
    for path in (".github/workflows/ci.yml", ".envrc"):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text("mine\n")
    git(repository, "init", "-q", "sub/inner")
    if os.geteuid() == 0:
        own(repository)
    listing = subprocess.run(["ls", "-lRi", repository / ".git"], capture_output=True, check=True).stdout  # noqa: ASYNC221
    prepared = await prepare(repository, "bind", run="run-1", run_dir=state / "runs" / "run-1", state=state)
    async with fence(prepared) as sandbox:
        result = await sandbox.run(["sh", "-c", attack], timeout_s=10)
    assert not result.ok
    again = subprocess.run(["ls", "-lRi", repository / ".git"], capture_output=True, check=True).stdout  # noqa: ASYNC221
    assert again == listing
    assert (repository / ".envrc").read_text() == "mine\n"


def _unborn(path: Path, git) -> None:
    git(path, "init", "-q")
    (path / "f").touch()


def _packed(path: Path, git) -> None:
    _unborn(path, git)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "work")
    git(path, "tag", "-am", "v", "v1")
    git(path, "gc", "-q")


def _detached(path: Path, git) -> None:
    _packed(path, git)
    git(path, "checkout", "-q", "--detach")


def _sha256(path: Path, git) -> None:
    git(path, "init", "-q", "--object-format=sha256")
    (path / "f").touch()
    git(path, "add", "-A")
    git(path, "commit", "-qm", "work")


def _shallow(path: Path, git) -> None:
    source = path.parent / "source"
    source.mkdir()
    _packed(source, git)
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(path.parent, "clone", "-q", "--depth=1", f"file://{source}", str(path))


def _worktree(path: Path, git) -> None:
    main = path.parent / "source"
    main.mkdir()
    _packed(main, git)
    path.rmdir()
    git(main, "worktree", "add", "-q", str(path))


def _submodule(path: Path, git) -> None:
    source, above = path.parent / "origin", path.parent / "source"
    source.mkdir()
    _packed(source, git)
    above.mkdir()
    _packed(above, git)
    git(above, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "inner")
    path.rmdir()
    (above / "inner").rename(path)
    (path / ".git").write_text("gitdir: ../source/.git/modules/inner\n")
    git(above, "config", "-f", ".git/modules/inner/config", "core.worktree", str(path))


def _split_index(path: Path, git) -> None:
    _packed(path, git)
    git(path, "update-index", "--split-index")
    (path / "g").touch()
    git(path, "add", "g")
    git(path, "commit", "-qm", "g")


def _sparse(path: Path, git) -> None:
    _unborn(path, git)
    for name in ("in", "out"):
        (path / name).mkdir()
        (path / name / "x").touch()
    git(path, "add", "-A")
    git(path, "commit", "-qm", "work")
    git(path, "sparse-checkout", "set", "--cone", "--sparse-index", "in")


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [_unborn, _packed, _detached, _sha256, _shallow, _worktree, _submodule, _split_index, _sparse],
    ids=lambda build: build.__name__.strip("_"),
)
async def test_every_kind_of_repository(build, workspace: Path, ready, git):
    """In each kind of repository the agent can commit, and its commit is imported."""
    build(workspace, git)
    prepared = await ready(workspace, beside=[workspace.parent / "source"])
    assert prepared.notes == ()
    async with fence(prepared) as sandbox:
        assert "error" not in await shell(sandbox, "git status --porcelain 2>&1")
        await shell(sandbox, "echo x > new; git add new; git commit -qm inside 2>&1")
    done = await prepared.deliver(open_at)
    assert done.notes == ()
    ((name, commit),) = done.record.refs.items()
    assert name.endswith("/HEAD") == (build is _detached)
    assert git(workspace, "log", "-1", "--format=%s", commit) == "inside"
    assert [change.path for change in done.diff.files] == ["new"]


@pytest.mark.slow
async def test_unknown_repository_format(repository: Path, ready, git):
    """A repository of an unknown format becomes an empty one inside, with a note."""
    with (repository / ".git/config").open("a") as config:
        config.write("[extensions]\n\trefStorage = reftable\n")
    prepared = await ready(repository)
    assert "refstorage" in prepared.notes[0]
    async with fence(prepared) as sandbox:
        assert "?? a.txt" in await shell(sandbox, "git status --porcelain")
