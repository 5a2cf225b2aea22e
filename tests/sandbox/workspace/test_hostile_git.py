"""Nothing that a workspace names is run on the host, by any step of a run."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sandbox.workspace.runs import prepare

from ringfence.sandbox.workspace.record import apply_run, diff_run, open_store, patch_run, undo_run
from ringfence.sandbox.workspace.snapshot.store import SnapshotStore

pytestmark = pytest.mark.anyio

HOOKS = (
    "pre-commit",
    "post-checkout",
    "post-index-change",
    "reference-transaction",
    "pre-auto-gc",
    "post-merge",
    "fsmonitor-watchman",
    "post-update",
)


def plant(repository: Path, command: str) -> None:
    """Everything in a repository that can make git run a command."""
    hook = f"#!/bin/sh\n{command}\n"
    for folder in (repository / ".git" / "hooks", repository / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in HOOKS:
            (folder / name).write_text(hook)
            (folder / name).chmod(0o755)
    script = repository / "evil.sh"
    script.write_text(hook)
    script.chmod(0o755)
    with (repository / ".git" / "config").open("a") as config:
        config.write(
            f"""
[core]
    fsmonitor = {script}
    hooksPath = {repository}/hooks
    pager = {script}
    sshCommand = {script}
    editor = {script}
    alternateRefsCommand = {script}
    gitProxy = {script}
[filter "x"]
    clean = {script}
    smudge = {script}
    process = {script}
    required = true
[diff]
    external = {script}
[diff "x"]
    textconv = {script}
    command = {script}
[merge "x"]
    driver = {script}
[credential]
    helper = {script}
[gpg]
    program = {script}
[uploadpack]
    packObjectsHook = {script}
[extensions]
    partialClone = origin
[remote "origin"]
    url = ext::{script}
    uploadpack = {script}
    promisor = true
[include]
    path = {repository}/included
"""
        )
    (repository / "included").write_text(f"[core]\n\tfsmonitor = {script}\n")
    (repository / ".gitattributes").write_text(
        "* filter=x diff=x merge=x text working-tree-encoding=UTF-16\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["clone", None])
async def test_a_whole_run_runs_nothing(mode, repository: Path, state: Path, canary: Callable[[], str], own):
    """Hooks, filters, fsmonitor, textconv, external diffs and remotes planted in the repository stay silent."""
    plant(repository, canary())
    if os.geteuid() == 0 and mode is None:
        own(repository)
    prepared = await prepare(repository, mode, run="run-1", run_dir=state / "runs" / "run-1", state=state)
    assert prepared.placement.workspace_source is not None
    (prepared.placement.workspace_source / "a.txt").write_text("agent\n")
    done = await prepared.deliver(None)
    assert [change.path for change in done.diff.files] == ["a.txt"]
    assert b"+agent" in await patch_run(done.record, open_store(done.record, state))
    if mode == "clone":
        await apply_run(done.record, state)
    assert (repository / "a.txt").read_text() == "agent\n"
    await undo_run(done.record, state)
    assert (repository / "a.txt").read_text() == "one\n"


async def test_planted_during_the_run(repository: Path, store: SnapshotStore, canary: Callable[[], str], git):
    """Repositories that an agent plants in the workspace are not opened when the state after it is kept."""
    before = await store.take("r/before")
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    plant(inner, canary())
    (repository / "pointer").mkdir()
    (repository / "pointer" / ".git").write_text(f"gitdir: {inner}/.git\n")
    (repository / "pointer" / "f").touch()
    after = await store.take("r/after", base=before.id)
    assert {b"inner/.git", b"pointer/.git"} <= after.found.git_entries
    assert {"inner/evil.sh", "pointer/f"} <= {c.path for c in (await store.diff(before.id, after.id)).files}
    await store.patch(before.id, after.id)


async def test_appearing_git_is_named(workspace: Path, state: Path, own):
    """A `.git` that an agent makes where there was none is told as running on your machine."""
    if os.geteuid() == 0:
        own(workspace)
    prepared = await prepare(workspace, None, run="run-1", run_dir=state / "runs" / "run-1", state=state)
    for path in (".git/hooks/post-commit", "ignored/.git/config", ".envrc"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).touch()
    (workspace / ".gitignore").write_text("ignored/\n")
    done = await prepared.deliver(None)
    assert done.runs_on_your_machine == (".envrc", ".git", "ignored/.git")
    assert await diff_run(done.record, open_store(done.record, state)) == done.diff


async def test_path_of_the_workspace_is_not_searched(
    repository: Path, store, canary: Callable[[], str], monkeypatch
):
    """A `git` in the workspace is not the git that is run, even where PATH names relative directories."""
    fake = repository / "git"
    fake.write_text(f"#!/bin/sh\n{canary()}\n")
    fake.chmod(0o755)
    monkeypatch.chdir(repository)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert (await store.take("r/x")).files == 4
