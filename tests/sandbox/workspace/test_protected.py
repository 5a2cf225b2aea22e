"""Files that the host runs or trusts."""

from pathlib import Path

import pytest

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES
from ringfence.sandbox.workspace.protect.flags import flag, reason
from ringfence.sandbox.workspace.protect.mounts import (
    READ_ONLY_PATHS,
    check_own_git,
    git_entries,
    make_mounts,
)


@pytest.mark.parametrize("entry", AUTO_EXECUTED_FILES, ids=lambda entry: entry.path)
def test_each_row_is_reported_and_has_a_reason(entry):
    """A change to a file of the table, or below it, is named in any case, in subdirectories where it says so."""
    spellings = {entry.path, f"{entry.path}/inner", entry.path.upper(), entry.path.lower()}
    spellings |= {f"deep/er/{path}" for path in spellings} if entry.anywhere else set()
    assert flag(spellings) == sorted(spellings)
    assert reason(entry.path) == entry.because


@pytest.mark.parametrize(
    "entry", [e for e in AUTO_EXECUTED_FILES if e.treatment == "read_only"], ids=lambda e: e.path
)
def test_each_read_only_row_is_mounted(entry, workspace: Path):
    """Where a read-only file is there, it is mounted upon itself, and each directory above it as well."""
    path = workspace / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    mounts = {mount.target: mount.read_only for mount in make_mounts(workspace, READ_ONLY_PATHS)}
    assert mounts.pop(path) is True
    assert set(mounts) == set(path.parents) - set(workspace.parents) - {workspace}
    assert not any(mounts.values())


def test_absent_files_are_not_made(workspace: Path):
    """Nothing is mounted, and nothing created, for what is not there."""
    assert make_mounts(workspace, READ_ONLY_PATHS) == ()
    assert list(workspace.iterdir()) == []


def test_links_are_left_alone(workspace: Path):
    """A mount would follow a link out of the workspace."""
    (workspace / ".envrc").symlink_to("/etc/passwd")
    (workspace / ".github").symlink_to("/etc")
    assert make_mounts(workspace, READ_ONLY_PATHS) == ()


@pytest.mark.parametrize(
    "path",
    [
        "sub/.git/config",
        "sub/.GIT/hooks/x",
        "x/HEAD",
        "deep/.vscode/tasks.json",
        "deep/er/.envrc",
        "a/.claude/settings.json",
    ],
)
def test_flagged_wherever_it_is(path: str):
    """Directories below the top are looked at as well."""
    assert flag([path]) == [path]


@pytest.mark.parametrize("path", ["CLAUDE.md", "AGENTS.md", "rust-toolchain.toml", "x.code-workspace"])
def test_ordinary_work_stays_writable(workspace: Path, path: str):
    """Files that agents are asked to edit are reported, not read-only."""
    (workspace / path).touch()
    assert make_mounts(workspace, READ_ONLY_PATHS) == ()


def test_bare_repository_is_flagged():
    """Git takes a directory for a repository by what is in it, whatever its name."""
    assert flag(["x/config", "x/refs/heads/main", "y/config"]) == ["x/config"]


@pytest.mark.parametrize(
    "path", ["Makefile", "src/main.py", "package.json", "docs/.envrc.md", "sub/ringfence.yaml"]
)
def test_ordinary_code_is_not_flagged(path: str):
    """What runs only when the project is run is not on the list."""
    assert flag([path]) == []


def test_git_that_is_a_link_is_refused(workspace: Path):
    """Git would follow the link, and a mount cannot guard it."""
    (workspace / ".git").symlink_to("elsewhere")
    with pytest.raises(PolicyRefused, match="mode 'clone'"):
        check_own_git(workspace)


def test_too_many_repositories():
    """More repositories than can be guarded are refused, not left open."""
    with pytest.raises(PolicyRefused, match="mode 'clone'"):
        git_entries([b"%d/.git" % i for i in range(201)])
