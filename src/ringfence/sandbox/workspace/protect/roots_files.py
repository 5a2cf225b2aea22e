"""What keeps root's own workspace from being shown itself: files and mounts that would give more than the workspace.

Inside, root's files belong to the sandbox's user. The kernel clears a set-id bit or a file capability when a file is
written, but not when it is written through a mapping (mmap(2)). And the owner of a read-only file can make it writable
by an access control list, which keeps the bit. So an agent could put its own program into one.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ringfence.errors import PolicyRefused
from ringfence.sandbox.workspace.snapshot.walk import MAX_ENTRIES
from ringfence.sandbox.workspace.tree import SET_ID, Tree

_SHOWN = 5
_ESCAPE = re.compile(rb"\\([0-7]{3})")


def check_roots_files(workspace: Path) -> None:
    """Refuse root's workspace where it would show more than the files of an ordinary project.

    Raises:
        PolicyRefused: Something is mounted in it, or files in it have set-id bits or capabilities.
    """
    inner = [
        os.fsdecode(point) for point in _mount_points() if point.startswith(os.fsencode(workspace) + b"/")
    ]
    if inner:
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: root's workspace is shown without what is mounted in it, and there"
            f" is a mount on {', '.join(map(repr, sorted(inner)[:_SHOWN]))}; unmount it, or use mode 'clone'",
            rule="bind-inner-mount",
        )
    with Tree(workspace) as tree:
        found = sorted(_privileged(tree))
    if found:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        names = ", ".join(repr(os.fsdecode(path)) for path in found[:_SHOWN])
        raise PolicyRefused(
            f"workspace mode 'bind' is refused: an agent could put its own program into files with set-id bits or"
            f" capabilities: {names}{more}; take these away (chmod ug-s, setcap -r), or use mode 'clone'",
            rule="bind-privileged-files",
        )


def _privileged(tree: Tree) -> Iterator[bytes]:
    """Files that give rights to whoever runs them. Git directories are not looked into: none is writable inside."""
    for folder, names in tree.walk(MAX_ENTRIES):
        for name in map(os.fsencode, names):
            path = folder + b"/" + name if folder else name
            status = tree.lstat(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            if status.st_mode & SET_ID or _has_capabilities(tree, path):
                yield path


def _has_capabilities(tree: Tree, path: bytes) -> bool:
    try:
        directory, name = tree.parent(path)
        return "security.capability" in os.listxattr(
            b"/proc/self/fd/%d/%s" % (directory, name), follow_symlinks=False
        )
    except OSError:  # the file system has none, or the file is gone
        return False


def _mount_points() -> Iterator[bytes]:
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        yield _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), line.split()[4])
