"""Which files the repositories in a workspace track, read from copies of their indexes.

Git works on git directories of ours that hold nothing but such a copy, and an empty work tree: it opens neither the
repositories nor the workspace.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import INDEX_LIMIT, find_git, read_config, read_small
from ringfence.sandbox.workspace.run_as import Actor
from ringfence.sandbox.workspace.snapshot.walk import MAX_NAMES_BYTES

_MAX_REPOSITORIES = 1000
_ROOM_FOR_INDEXES_BYTES = 256 * 1024**2
"""Of the workspace's own, which has about 100 bytes for a file."""
_ROOM_WITHIN_BYTES = 64 * 1024**2
"""Of those of all repositories within together: copies, in a directory that may lie in memory."""
_TIMEOUT_S = 60.0
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


@dataclass
class Repositories:
    """The repositories of one workspace, in which nobody is working.

    Args:
        root: The workspace.
        actor: As whom git runs.
        scratch: An empty directory of the actor's.
    """

    root: Path
    actor: Actor
    scratch: Path
    tracked: set[bytes] = field(default_factory=set)
    """Paths that the indexes hold."""
    submodules: set[bytes] = field(default_factory=set)
    """Directories, ending in a slash, that an index holds a commit for."""
    excludes: dict[bytes, bytes] = field(default_factory=dict)
    """For each repository the ignore rules of its own that are not in `.gitignore` files."""
    left_out: set[bytes] = field(default_factory=set)
    """Repositories that were too many to be read."""
    notes: list[str] = field(default_factory=list)
    _room_within: int = field(default_factory=lambda: _ROOM_WITHIN_BYTES)

    async def read(self, place: bytes) -> None:
        """Read a repository.

        Args:
            place: Its path in the workspace, ending in a slash; empty for the workspace itself.
        """
        if len(self.excludes) >= _MAX_REPOSITORIES:
            if not self.left_out:
                self.notes.append(f"only {_MAX_REPOSITORIES} git repositories in the workspace are covered")
            self.left_out.add(place)
            return
        directory = self.scratch / str(len(self.excludes))
        copied = await self.actor.call(lambda: self._copy(place, directory))
        if copied is None and place and place not in self.submodules:
            return  # What git does not take for a repository is part of the one around it.
        copied = copied or CopiedIndex()
        self.excludes[place] = copied.excludes
        name = os.fsdecode(place) or "."
        if copied.is_left_out:
            self.notes.append(f"the git index of {name!r} is too large to be used")
        if not copied.size:
            return
        try:
            paths = await self._paths(directory, place, with_submodules=copied.gitlinks)
        except InfrastructureFault:
            # An index we cannot use: sparse, damaged, of a newer git.
            self.notes.append(f"the git index of {name!r} was not used: files that are ignored are left out")
        else:
            self.tracked |= paths

    def _copy(self, place: bytes, directory: Path) -> CopiedIndex | None:
        work_tree = self.root / os.fsdecode(place.rstrip(b"/"))
        room = self._room_within if place else _ROOM_FOR_INDEXES_BYTES
        copied = copy_index(work_tree, directory, room_bytes=room, with_objects=not place)
        if copied is not None and place:
            self._room_within -= copied.size
        if copied is not None and copied.size:
            (directory / "nothing").mkdir()
        return copied

    async def _paths(self, directory: Path, place: bytes, *, with_submodules: bool) -> set[bytes]:
        git = Git(directory, directory / "nothing", self.actor)
        answer = await git.run(
            "ls-files", "-z", "-c", timeout_s=_TIMEOUT_S, output_limit_bytes=MAX_NAMES_BYTES
        )
        paths = set(answer.stdout.split(b"\0"))
        paths.discard(b"")
        if with_submodules:
            staged = await git.run(
                "ls-files", "-z", "-s", timeout_s=_TIMEOUT_S, output_limit_bytes=2 * MAX_NAMES_BYTES
            )
            links = [line for line in staged.stdout.split(b"\0") if line.startswith(b"160000 ")]
            self.submodules |= {place + line.partition(b"\t")[2] + b"/" for line in links}
        return {place + path for path in paths} if place else paths


def copy_index(
    work_tree: Path, target: Path, *, room_bytes: int, with_objects: bool = False
) -> CopiedIndex | None:
    """Copy a repository's index, and the one it shares entries with, if there is room; None without a repository.

    Args:
        work_tree: Of the repository.
        target: The git directory of ours.
        room_bytes: How much may be copied.
        with_objects: Whether git may read the repository's objects: a sparse index names directories only, and git
            finds the files in the objects. Not those of repositories within, which an agent can write.
    """
    layout = find_git(work_tree)
    if layout is None:
        return None
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
    if with_objects:
        (target / "objects" / "info" / "alternates").write_bytes(os.fsencode(layout.objects) + b"\n")
    (target / "index").write_bytes(index)
    if name:
        (target / os.fsdecode(name)).write_bytes(shared)
    gitlinks = _GITLINK in index or _GITLINK in shared
    return CopiedIndex(excludes, gitlinks, len(index) + len(shared))


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
