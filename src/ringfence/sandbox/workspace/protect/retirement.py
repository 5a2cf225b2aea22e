"""Moves repositories that a run made out of the workspace: git would run programs that their configuration names.

They are in no checkpoint, and somebody may have worked in one since. So they are moved, not removed.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from ringfence.config.paths import make_private_dir
from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.protect.untrusted import why_untrusted
from ringfence.sandbox.workspace.tree import Tree

_FOLDER = "undone-git"


@frozen
class Retired:
    """Which repositories were moved, and which could not be."""

    moved: tuple[tuple[str, str], ...] = ()
    """Where each `.git` was, relative to the workspace, and the path that it has now."""
    stuck: tuple[tuple[str, str], ...] = ()
    """Each `.git` that could not be moved, and why."""


def retire_repositories(workspace: Path, entries: Iterable[str], *, run_dir: Path, state: Path) -> Retired:
    """Move each `.git` that a run made out of the workspace.

    A repository that somebody else has made in the same place since then is left alone and not reported.

    Args:
        workspace: Resolved.
        entries: Paths in it.
        run_dir: The run's directory, which takes them. Where that is on another file system, they stay where they are
            under a name that git does not look for.
        state: The state directory.
    """
    moved, stuck = [], []
    for entry in entries:
        if why_untrusted((workspace / entry).parent, state) is None:
            continue
        try:
            moved.append((entry, str(_move(workspace, os.fsencode(entry), run_dir))))
        except (OSError, InfrastructureFault) as exc:
            stuck.append((entry, str(exc)))
    return Retired(tuple(moved), tuple(stuck))


def _move(workspace: Path, path: bytes, run_dir: Path) -> Path:
    folder = make_private_dir(run_dir / _FOLDER)
    target = folder / secrets.token_hex(4)
    with Tree(workspace, unlock=stat.S_IRWXU) as tree:
        status = tree.lstat(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            tree.directory(
                path
            )  # to move a directory takes the right to write in it, which is given back here
        parent, name = tree.parent(path)
        try:
            os.rename(name, target, src_dir_fd=parent)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
            aside = name + b".undone-" + os.fsencode(run_dir.name[-8:])
            os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
            return workspace / os.fsdecode(path.removesuffix(name) + aside)
        tree.forget()
        tree.remove_empty_parents(path)
    return target
