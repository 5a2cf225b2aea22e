"""`Sandbox.open` without a run gives what a run gives: one writer, a private git, and no field without effect."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import PolicyRefused, UsageError
from ringfence.sandbox import Sandbox, SandboxSpec

TOKEN = "https://user:hunter2@example.com/x.git"
Git = Callable[..., str]


@pytest.fixture
def theirs(repository: Path, git: Git, own: Callable[..., None]) -> Path:
    """A user's repository with a token in the address of a remote."""
    git(repository, "remote", "add", "origin", TOKEN)
    if os.geteuid() == 0:
        own(repository)
    return repository


@pytest.mark.parametrize("mode", ["bind", "read_only"])
async def test_the_users_git_directory_is_not_read(theirs: Path, mode: Any) -> None:
    """What the repository's own configuration holds is nowhere inside."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=theirs, mode=mode)) as sandbox:
        found = await sandbox.run(["grep", "-r", "hunter2", ".", "/run"])
        seen = await sandbox.run(["git", "status"])
    assert found.stdout == ""
    assert seen.ok, seen.stderr


async def test_a_commit_inside_is_not_the_users(theirs: Path, git: Git) -> None:
    """Git works inside, on a directory that goes with the sandbox; the user's refs are as they were."""
    before = git(theirs, "for-each-ref"), git(theirs, "rev-parse", "HEAD")
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", workspace=theirs)) as sandbox:
        made = await sandbox.run(["sh", "-c", "echo x > new && git add new && git commit -qm new"])
        assert made.ok, made.stderr
    assert (git(theirs, "for-each-ref"), git(theirs, "rev-parse", "HEAD")) == before
    assert (theirs / "new").exists()


async def test_a_second_writer_is_refused(theirs: Path) -> None:
    """Two sandboxes never write to one workspace at once; one that only reads may come beside."""
    spec = SandboxSpec(backend="bubblewrap", workspace=theirs)
    async with Sandbox.open(spec):
        with pytest.raises(PolicyRefused, match="working on") as refused:
            async with Sandbox.open(spec):
                pass
        async with Sandbox.open(spec.model_copy(update={"mode": "read_only"})) as reader:
            assert (await reader.run(["true"])).ok
    assert refused.value.rule == "workspace-busy"
    async with Sandbox.open(spec) as again:
        assert (await again.run(["true"])).ok


@pytest.mark.parametrize(
    "fields",
    [
        {"egress": {"allow": ["example.com"]}},
        {"forward": ("redis:6379",)},
        {"engine_access": {"label": "a"}},
    ],
    ids=["egress", "forward", "engine_access"],
)
async def test_a_way_out_that_nobody_opens_is_refused(fields: dict[str, Any]) -> None:
    """A field of a spec that would have no effect is an error that names it."""
    with pytest.raises(UsageError, match=f"SandboxSpec\\({next(iter(fields))}="):
        async with Sandbox.open(SandboxSpec.model_validate({"backend": "bubblewrap", **fields})):
            pass
