"""Object databases of the user's: whether a sandbox may be shown them, and copies where it may not."""

import os
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from ringfence.sandbox.workspace.git.layout import GitLayout
from ringfence.sandbox.workspace.run_as import Actor, give
from ringfence.sandbox.workspace.tree import Tree

_MAX_PACK_FILES = 200_000
_OBJECT_FILE = re.compile(
    rb"[0-9a-f]{2}/([0-9a-f]{38}|[0-9a-f]{62})"
    rb"|pack/(pack-[0-9a-f]{40,64}\.(pack|idx|rev|bitmap|mtimes)|multi-pack-index[\w.-]{0,80})"
    rb"|info/(packs|commit-graph|commit-graphs/(commit-graph-chain|graph-[0-9a-f]{40,64}\.graph))"
)
"""All that is copied of an object database."""


def readable_by_all(objects: Path) -> bool:
    """Whether any uid can read the objects; the directories above do not matter, mounts go past them."""
    with Tree(objects) as tree:
        for folder, names in tree.walk(_MAX_PACK_FILES):
            here = tree.lstat(folder) if folder else objects.stat()
            if here is None or not here.st_mode & stat.S_IROTH or not here.st_mode & stat.S_IXOTH:
                return False
            for name in names if folder == b"pack" else ():
                status = tree.lstat(folder + b"/" + os.fsencode(name))
                if status is not None and not status.st_mode & stat.S_IROTH:
                    return False
    return True


async def copy_databases(layout: GitLayout, copies: Mapping[Path, Path], reader: Actor) -> None:
    """Copy object databases as whom they are read: root's powers would open any file that was put there.

    The copies lie where only the caller can walk to, so the reader gets descriptors of the directories.

    Args:
        layout: The repository.
        copies: Each database, and the empty directory it is copied to.
        reader: On whose behalf they are read.
    """
    for database, target in copies.items():
        give(target, reader)
        held = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            await reader.call(lambda: _copy_database(layout, database, held))  # noqa: B023 - awaited at once
        finally:
            os.close(held)


def _copy_database(layout: GitLayout, source: Path, target: int) -> None:
    """Copy what git keeps in an object database; no hard links, as for all that an agent gets."""
    root = layout.workspace if source.is_relative_to(layout.workspace) else source
    place = b"" if root == source else os.fsencode(source.relative_to(root)) + b"/"
    with Tree(root) as tree:
        for folder in _folders(tree, place):
            if folder:
                os.mkdir(folder, 0o755, dir_fd=target)
            with os.scandir(tree.directory((place + folder).rstrip(b"/"))) as entries:
                names = [os.fsencode(entry.name) for entry in entries]
            for name in names:
                path = folder + b"/" + name
                status = tree.lstat(place + path)
                if status and stat.S_ISREG(status.st_mode) and _OBJECT_FILE.fullmatch(path):
                    _copy_file(tree, place + path, path, target)


def _folders(tree: Tree, place: bytes) -> list[bytes]:
    inner = tree.children(place.rstrip(b"/"))
    wanted = [name for name in inner if re.fullmatch(rb"[0-9a-f]{2}|pack|info", name)]
    wanted += [b"info/commit-graphs"] if b"info" in wanted else []
    found = ((name, tree.lstat(place + name)) for name in wanted)
    return [name for name, status in found if status is not None and stat.S_ISDIR(status.st_mode)]


def _copy_file(tree: Tree, source: bytes, path: bytes, target: int) -> None:
    folder, name = tree.parent(source)
    # O_NONBLOCK: a fifo must not hang us.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as reading:
        if not stat.S_ISREG(os.fstat(reading.fileno()).st_mode):
            return
        made = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, made, 0o444, dir_fd=target), "wb") as writing:
            shutil.copyfileobj(reading, writing, 1024**2)
