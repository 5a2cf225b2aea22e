"""What directories held when they were last looked into, and what git said of them: kept beside the store.

A directory whose change time, inode and device are as they were holds the names that it held: each name that comes,
goes or is exchanged sets its change time, as a new mode does, and no user can set one. Believed is only what
was old enough when it was read: a second change within one tick of the clock leaves no trace. Contents of files are
another matter (`scan`).
"""

import ctypes
import os
import stat
import sys
from pathlib import Path

import msgspec

from ringfence.sandbox.workspace.snapshot.ignore import Rules
from ringfence.sandbox.workspace.snapshot.scan import is_settled

MAX_REMEMBERED_BYTES = 32 * 1024**2
"""Of names and paths: what is beyond is looked at anew each time."""
_COST_BYTES = 128
_ENTERED = stat.S_IRUSR | stat.S_IXUSR
_LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010})
"""ext4, xfs, btrfs, tmpfs, f2fs (statfs(2)). Elsewhere change times may be another machine's, or missing."""

DIRECTORY, FILE, LINK, SPECIAL = range(4)


class Held(msgspec.Struct, array_like=True, gc=False):
    """What was in one directory."""

    inode: int
    ctime_ns: int
    count: int
    """Of all entries."""
    plain: bytes
    """Names of files that nothing is to be said of, in order, separated by NUL."""
    others: list[tuple[bytes, int]]
    """Names and kinds of the rest, but for what does not matter."""


class Told(msgspec.Struct):
    """What git said of the workspace."""

    question: bytes
    """Digest of all that decides about it, but for the names in the tree."""
    names: dict[bytes, bytes]
    """The files to cover, by the directory they lie in, separated by NUL."""
    ignored: frozenset[bytes]
    rules: Rules
    notes: list[str]


class Remembered(msgspec.Struct):
    """What is known of one tree, as one user saw it."""

    read_as: bytes = b""
    """Digest of what `Held` tells apart; a later version may tell more."""
    device: int = -1
    uid: int = -1
    folders: dict[bytes, Held] = {}
    index: bytes = b""
    """What tells the git index that git was last asked about from any other; empty: nothing does."""
    indexed: bytes = b""
    """Digest of what git said was in it."""
    told: Told | None = None
    """Holds as long as all directories hold what they held; forgotten with the first that does not."""


class Folders:
    """The directories of one look, each compared with the last one.

    Args:
        root: A descriptor of the top.
        remembered: What is known; is brought up to date.
        began_ns: When the look began.
    """

    def __init__(self, root: int, remembered: Remembered, began_ns: int) -> None:
        self._root = root
        self._began_ns = began_ns
        self._remembered = remembered
        self._now: dict[bytes, Held] = {}
        self._room = MAX_REMEMBERED_BYTES
        self._device = os.fstat(root).st_dev
        if remembered.device != self._device or not _is_local(root):
            remembered.folders = {}
        remembered.device = self._device
        self._known = remembered.folders
        self.recalled: set[bytes] = set()
        """Directories that hold what they held."""
        self.is_same = True
        """Whether every directory that matters to git was as it was."""

    def recall(self, path: bytes) -> Held | None:
        """What the directory at `path` holds, where that is known for certain."""
        held = self._known.get(path)
        if held is None:
            return None
        try:
            # Links above it are followed. If it is the same directory all the same, then so is what it holds.
            status = os.stat(path or b".", dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return None
        is_same = (
            status.st_ctime_ns == held.ctime_ns
            and status.st_ino == held.inode
            and status.st_dev == self._device
        )
        if not is_same:
            return None
        self._keep(path, held)
        self.recalled.add(path)
        return held

    def note(self, path: bytes, status: os.stat_result, held: Held) -> None:
        """Remember what was just read, where it can be believed later.

        Args:
            path: The directory.
            status: Its status from before it was read.
            held: What it holds.
        """
        is_believed = (
            status.st_dev == self._device
            # With fewer rights, a look after a run gives them back.
            and status.st_mode & _ENTERED == _ENTERED
            and is_settled(status.st_ctime_ns, self._began_ns)
        )
        if is_believed:
            self._keep(path, held)

    def _keep(self, path: bytes, held: Held) -> None:
        self._room -= len(path) + len(held.plain) + _COST_BYTES
        for name, _ in held.others:
            self._room -= len(name) + _COST_BYTES
        if self._room >= 0:
            self._now[path] = held

    def end(self) -> bool:
        """Bring what is remembered up to date; whether that changed it."""
        remembered = self._remembered
        told = remembered.told if self.is_same else None
        is_news = told is not remembered.told or self._now != self._known
        remembered.folders, remembered.told = (self._now if _is_local(self._root) else {}), told
        return is_news


def _is_local(fd: int) -> bool:
    """Whether a file system of this machine keeps the change times."""
    answer = (ctypes.c_long * 32)()
    if not sys.platform.startswith("linux") or ctypes.CDLL(None).fstatfs(fd, answer) != 0:
        return False
    return answer[0] & 0xFFFFFFFF in _LOCAL


def load_remembered(path: Path, uid: int) -> Remembered:
    """What is remembered at `path` of what this user saw; nothing where that is absent, damaged or another's."""
    try:
        found = msgspec.msgpack.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.DecodeError):
        found = Remembered()
    return found if found.uid == uid else Remembered(uid=uid)


def save_remembered(path: Path, remembered: Remembered) -> None:
    """Replace what is remembered at `path` at once."""
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(path.name + ".new")
    partial.write_bytes(msgspec.msgpack.encode(remembered))
    partial.replace(path)
