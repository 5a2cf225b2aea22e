"""A story's worktree: the files of one commit, with a git directory of data that runs copy for their agents.

Git runs on the loop's repository alone, with this directory as its work tree. The worktree's `.git` is written here: the
loop's objects as links, its tags, and the branch `loop` at the commit, so that an agent sees nothing of other stories'
branches, and commits that come out of a run never reach the loop's repository (docs/adr/0042-git-of-loops.md).
"""

import os
import shutil
from pathlib import Path

import anyio.to_thread

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.loop.repository.place import BRANCH
from ringfence.removal import remove_tree
from ringfence.sandbox.workspace.git.command import Git, clean_config, write_clean_git_dir
from ringfence.sandbox.workspace.tree import Tree

_CHECKOUT_S = 600.0
_MOST_OBJECT_FILES = 1_000_000


@frozen
class Worktree:
    """The files that one story at a time is worked on in."""

    number: int
    path: Path
    """Where the files are: what a run is given as its workspace, to be cloned."""
    inside: Path
    """The directory in it that the loop works in; `path` itself, unless a subdirectory was named."""

    @property
    def git_dir(self) -> Path:
        """Its git directory; no git is run on it."""
        return self.path / ".git"


async def check_out(git: Git, worktree: Worktree, commit: str, *, object_format: str, is_known: bool) -> None:
    """Make a worktree's files and index exactly a commit; nothing else is left, ignored or not.

    Args:
        git: The loop's repository, under the worktree's lock, with its path as the work tree.
        worktree: Which.
        commit: A whole id.
        object_format: `sha1` or `sha256`.
        is_known: Whether this process checked out its present files: then git changes only what differs. Otherwise a
            killed process may have left anything, and the worktree is made anew.

    Raises:
        InfrastructureFault: The disk is full, or the repository has no such commit.
    """
    index = {"GIT_INDEX_FILE": str(worktree.git_dir / "index")}
    command = ("-c", "core.bare=false", "read-tree", "--reset", "-u", commit)
    writing = Git(
        git.directory,
        work_tree=git.work_tree,
        options=git.options,
        inherited=git.inherited,
        environment=index,
    )
    if is_known:
        await _prepare(git.directory, worktree, commit, object_format, is_anew=False)
        done = await writing.run(*command, timeout_s=_CHECKOUT_S, accept=range(256))
        if done.ok and not done.stderr.strip():
            return
    await _prepare(git.directory, worktree, commit, object_format, is_anew=True)
    await writing.run(*command, timeout_s=_CHECKOUT_S)


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
    """Give a git directory the objects of another: by links, as both are the loop's, and no object is ever changed.

    Raises:
        OSError: They cannot be copied.
    """
    with Tree(source) as tree:
        for folder, names in tree.walk(_MOST_OBJECT_FILES):
            place = target / os.fsdecode(folder)
            place.mkdir(parents=True, exist_ok=True)
            # A pack is seen by its index, which therefore comes last.
            for name in sorted(names, key=lambda name: name.endswith(".idx")):
                _link(source / os.fsdecode(folder) / name, place / name)


def _link(source: Path, target: Path) -> None:
    is_passing = source.name.startswith("tmp_") or source.name.endswith(".keep")  # while git writes a pack
    if is_passing or source.is_dir() or target.exists():
        return
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
