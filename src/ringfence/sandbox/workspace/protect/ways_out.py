"""What lies in a workspace and leads out of it: live sockets and fifos of the host, and files with other names.

A mount shows them as they are: a socket inside is the program outside that listens on it, a fifo the program
that reads it, and a hard link is the same file as its other names. Sockets and fifos that are there at the
start are covered by something that nothing can be sent to; hard links are told.
"""

import os
from collections.abc import Collection, Mapping
from itertools import islice
from pathlib import Path

from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Overlay
from ringfence.sandbox.workspace.tree import Tree

COVER = Path("/dev/null")
"""What is put over what leads out."""
_MAXCOVERED = 200
_SHOWN = 5
_LOOKED_AT = 2000
"""Files in ignored directories (venvs, node_modules): enough to see whether links are made there."""


def covers_for(workspace: Path, specials: Collection[bytes]) -> tuple[Overlay, ...]:
    """Mounts that put sockets, fifos and devices out of reach, for after all others.

    Args:
        workspace: Path inside.
        specials: Their paths in it.

    Raises:
        PolicyRefused: There are more than can be covered.
    """
    if len(specials) > _MAXCOVERED:
        raise PolicyRefused(
            f"{len(specials)} sockets, fifos and devices lie in the workspace, and {_MAXCOVERED} can be covered;"
            " remove them (`ringfence undo` does where a run left them), or use mode 'clone'",
            rule="too-many-sockets",
        )
    return tuple(Overlay(COVER, workspace / os.fsdecode(path), read_only=True) for path in sorted(specials))


def cover_note(specials: Collection[bytes]) -> tuple[str, ...]:
    """Tell what is covered; nothing where nothing is."""
    if not specials:
        return ()
    return (
        f"sockets, fifos and devices in the workspace are out of the agent's reach: {_named(sorted(specials))}",
    )


def links_note(
    tree: Tree, linked: Mapping[bytes, tuple[int, int]], ignored: Collection[bytes]
) -> tuple[str, ...]:
    """Tell which files have names elsewhere.

    Args:
        tree: The workspace.
        linked: Files with more than one name: inode, and how many names it has.
        ignored: Directories, ending in a slash, where a bounded number of files is looked at.
    """
    found = dict(linked)
    folders = sorted(path[:-1] for path in ignored if path.endswith(b"/"))
    for folder in folders[:_LOOKED_AT]:
        found |= _linked_in(tree, folder, max(1, _LOOKED_AT // len(folders)))
    seen: dict[int, int] = {}
    for inode, _ in found.values():
        seen[inode] = seen.get(inode, 0) + 1
    out = sorted(path for path, (inode, names) in found.items() if seen[inode] < names)
    if not out:
        return ()
    count = f"at least {len(out)}" if folders else str(len(out))
    note = (
        f"{count} files have another name elsewhere (hard links), and what is written to them in place is written"
        f" there, too; mode 'clone' has none: {_named(out)}"
    )
    return (note,)


def _linked_in(tree: Tree, folder: bytes, limit: int) -> dict[bytes, tuple[int, int]]:
    """Files with more than one name, among the first that are met."""
    found: dict[bytes, tuple[int, int]] = {}
    pending = [folder]
    while pending and limit > 0:
        here = pending.pop()
        try:
            with os.scandir(tree.directory(here)) as entries:
                for entry in islice(entries, limit):
                    limit -= 1
                    path = here + b"/" + os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_nlink > 1:
                            found[path] = (status.st_ino, status.st_nlink)
        except OSError:
            continue
    return found


def _named(paths: Collection[bytes]) -> str:
    names = ", ".join(repr(os.fsdecode(path)) for path in list(paths)[:_SHOWN])
    return f"{names} and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else names
