"""Checks a commit out into a story's worktree, and writes the git directory that runs copy for their agents.

Git runs only on the loop's repository, with the worktree's directory as its work tree. The worktree's `.git` contains
hard links to the loop's objects, its tags, and the branch `loop` at the commit. So an agent does not see the branches of
other stories, and commits that it makes never reach the loop's repository (docs/adr/0042-git-of-loops.md).
"""

import os
import shutil
from pathlib import Path

import anyio.to_thread

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.loop.repository.repository_directory import BRANCH
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git, clean_config, write_clean_git_dir
from ringfence.sandbox.workspace.tree import Tree

_CHECKOUT_S = 600.0
_MAX_OBJECT_FILES = 1_000_000


@frozen
class Worktree:
    """A directory with the files of a commit, used by one story at a time."""

    number: int
    path: Path
    """The top directory."""
    inside: Path
    """The directory that the loop works in: `path`, or a subdirectory. It is the workspace of runs, which clone it."""

    @property
    def git_dir(self) -> Path:
        """The worktree's git directory; Ringfence does not run git on it."""
        return self.path / ".git"


async def check_out(git: Git, worktree: Worktree, commit: str, *, object_format: str, is_known: bool) -> None:
    """Set a worktree's files and index to a commit; all other files, also ignored ones, are removed.

    Args:
        git: Git on the loop's repository, under the worktree's lock, with the worktree's path as the work tree.
        worktree: The worktree.
        commit: A full commit id.
        object_format: `sha1` or `sha256`.
        is_known: Whether this process checked out the worktree's current files, so that git need only update files
            that differ. Otherwise the worktree is created again: a killed process may have left anything in it.

    Raises:
        InfrastructureFault: The disk is full, or the repository has no such commit.
    """
    index = {"GIT_INDEX_FILE": str(worktree.git_dir / "index")}
    command = ("-c", "core.bare=false", "read-tree", "--reset", "-u", commit)
    git_on_files = Git(
        git.directory,
        work_tree=git.work_tree,
        options=git.options,
        inherited=git.inherited,
        environment=index,
    )
    if is_known:
        await _prepare(git.directory, worktree, commit, object_format, is_anew=False)
        done = await git_on_files.run(*command, timeout_s=_CHECKOUT_S, accept=range(256))
        if done.ok and not done.stderr.strip():
            return
    await _prepare(git.directory, worktree, commit, object_format, is_anew=True)
    await git_on_files.run(*command, timeout_s=_CHECKOUT_S)


async def _prepare(loop: Path, worktree: Worktree, commit: str, object_format: str, *, is_anew: bool) -> None:
    def prepare() -> None:
        own = worktree.git_dir
        for old in (worktree.path,) if is_anew else (own / "refs",):
            if os.path.lexists(old):
                remove_tree(old)
        worktree.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {
            "HEAD": f"ref: {BRANCH}\n".encode(),
            "config": clean_config(object_format).replace("bare = true", "bare = false").encode(),
            BRANCH: f"{commit}\n".encode(),
        }
        copied = (name for name in ("packed-refs", "shallow") if (loop / name).exists())
        files |= {name: (loop / name).read_bytes() for name in copied}
        write_clean_git_dir(own, object_format=object_format, files=files)
        link_objects(loop / "objects", own / "objects")

    try:
        await anyio.to_thread.run_sync(prepare)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not make {str(worktree.path)!r}: {exc.strerror}; {next_step(exc)}"
        ) from exc


def link_objects(source: Path, target: Path) -> None:
    """Hard-link the objects of one of the loop's git directories into another; objects are never changed.

    Raises:
        OSError: An object can be neither linked nor copied.
    """
    with Tree(source) as tree:
        for folder, names in tree.walk(_MAX_OBJECT_FILES):
            target_folder = target / os.fsdecode(folder)
            target_folder.mkdir(parents=True, exist_ok=True)
            # Git finds a pack by its index, which is therefore linked last.
            for name in sorted(names, key=lambda name: name.endswith(".idx")):
                _link(source / os.fsdecode(folder) / name, target_folder / name)


def _link(source: Path, target: Path) -> None:
    is_temporary = source.name.startswith("tmp_") or source.name.endswith(".keep")  # while git writes a pack
    if is_temporary or source.is_dir() or target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
