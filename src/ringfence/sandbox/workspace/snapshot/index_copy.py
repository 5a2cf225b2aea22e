"""A copy of a repository's index in a git directory of ours, so that git never opens the repository itself."""

import os
import stat
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, find_git, read_config, read_small

_MAX_GUESSES = 1000
_GITLINK = b"\x00\x00\xe0\x00"  # mode 160000 as an index entry holds it


@frozen
class CopiedIndex:
    """What was taken from a repository."""

    excludes: bytes = b""
    """Its own rules that are not in a `.gitignore`."""
    gitlinks: bool = False
    """Whether it may have submodules."""
    size: int = 0
    """Of the copies, in bytes."""
    is_left_out: bool = False
    """Whether its index was larger than the room there is."""
    is_split: bool = False
    """Whether the index shares entries with another file."""


def copy_index(work_tree: Path, target: Path, *, room_bytes: int) -> CopiedIndex:
    """Copy a repository's index, and the one it shares entries with, if there is room."""
    layout = find_git(work_tree)
    if layout is None:
        return CopiedIndex()
    excludes = read_small(layout.common, b"info/exclude") or b""
    index = _read_index(layout.directory, b"index", room_bytes)
    if not index:
        return CopiedIndex(excludes, is_left_out=index is None)
    name = _shared_name(index, layout.directory)
    shared = _read_index(layout.directory, name, room_bytes - len(index)) if name else b""
    if shared is None:
        return CopiedIndex(excludes, is_left_out=True)
    object_format = read_config(read_small(layout.common, b"config") or b"").get(
        "extensions.objectformat", "sha1"
    )
    write_clean_git_dir(target, object_format="sha256" if object_format.lower() == "sha256" else "sha1")
    # A sparse index names directories only; git finds the files in the objects.
    (target / "objects" / "info" / "alternates").write_bytes(os.fsencode(layout.objects) + b"\n")
    (target / "index").write_bytes(index)
    if name:
        (target / os.fsdecode(name)).write_bytes(shared)
    gitlinks = _GITLINK in index or _GITLINK in shared
    return CopiedIndex(excludes, gitlinks, len(index) + len(shared), is_split=bool(name))


def _read_index(directory: Path, name: bytes, room_bytes: int) -> bytes | None:
    """An index file; empty if there is none, None if there is no room for it."""
    data = read_small(directory, name, min(INDEX_LIMIT, max(0, room_bytes)))
    if data is None:
        return None if _is_file(directory / os.fsdecode(name)) else b""
    # What is no index is of no use to git either.
    return data if data.startswith(b"DIRC") else b""


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _shared_name(index: bytes, directory: Path) -> bytes:
    """The shared index that a split one names; empty if none.

    Its id is the first thing in the extension `link` (gitformat-index(5)), behind the size; the same bytes may be
    part of a name, so what is looked for is an id that there is a file for.
    """
    end = len(index)
    for _ in range(_MAX_GUESSES):
        end = index.rfind(b"link\0", 0, end)
        if end < 0:
            return b""
        for length in (32, 20):
            name = b"sharedindex." + index[end + 8 : end + 8 + length].hex().encode()
            if _is_file(directory / os.fsdecode(name)):
                return name
    return b""
