"""A look over a whole tree by our own hand: what is there, of which kind, and what could not be looked at.

An agent may have worked there, so git is not asked: what it meets on its way (a fifo called `.gitignore`,
rules that take for ever, gigabytes of names) would decide whether it ever answers. All that is gathered here
is bounded, and what lies beyond a bound is named.
"""

import errno
import hashlib
import itertools
import os
import stat
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.sandbox.workspace.protect.auto_executed_files import PROTECTED
from ringfence.sandbox.workspace.protect.flags import TRUSTED_NAMES, is_trusted
from ringfence.sandbox.workspace.snapshot.known import Names
from ringfence.sandbox.workspace.snapshot.remembered import (
    DIRECTORY,
    FILE,
    LINK,
    SPECIAL,
    Folders,
    Held,
    Remembered,
)
from ringfence.sandbox.workspace.tree import MAX_DEPTH, Tree

MAX_ENTRIES = 2_000_000
MAX_NAMES_BYTES = 64 * 1024**2
"""Of the paths of files: what is held of them in memory, about."""
ELSEWHERE = b"./"
"""Stands for directories that are too many to be named: anywhere in the workspace."""
BEYOND = "beyond the number of files that are looked at"
TOO_DEEP = "nested too deep to be looked at"
UNREADABLE = "the directory cannot be read"
_MAX_WATCHED_BYTES = 16 * 1024**2
"""Of the paths of each kind that is watched: a flood of one takes no room from another."""
_MAX_PENDING_BYTES = 128 * 1024**2
"""Of the names of directories that are still to be looked into."""
_PATH_COST_BYTES = 128
_AT_ONCE = 100_000
"""Entries of one directory that are held at a time."""
_MAX_NAMED = 1000
_SHOWN_LENGTH = 200
_REPOSITORY_NAMES = frozenset({"head", "objects", "refs", "commondir"})
"""What git takes a directory for a repository by, whatever the directory is called (gitrepository-layout(5))."""
_WATCHED_NAMES = TRUSTED_NAMES | _REPOSITORY_NAMES | {".git", ".gitignore"}
_READ_AS = hashlib.sha256(repr((1, sorted(_WATCHED_NAMES), PROTECTED)).encode()).digest()


@dataclass
class Survey:
    """What was found; paths are bytes relative to the root."""

    files: set[bytes] = field(default_factory=set)
    """Everything but directories and what is known, outside of the places left out."""
    git_entries: set[bytes] = field(default_factory=set)
    """Every `.git` below the root's own, wherever it is."""
    ignore_files: set[bytes] = field(default_factory=set)
    """Every `.gitignore`, wherever it is."""
    trusted: set[bytes] = field(default_factory=set)
    """Files that the host runs or trusts by their name, wherever they are."""
    specials: set[bytes] = field(default_factory=set)
    """Sockets, fifos and devices, wherever they are."""
    repositories: set[bytes] = field(default_factory=set)
    """HEAD and config of directories that git takes for a repository though they are not called `.git`."""
    closed: dict[bytes, str] = field(default_factory=dict)
    """Directories, ending in a slash, that were not looked into or not to their end, and why."""
    unlocked: tuple[bytes, ...] = ()
    """Directories on which the owner was given rights back; empty for the root."""

    recalled: set[bytes] = field(default_factory=set, compare=False)
    """Directories that hold the names they held at an earlier look."""
    is_news: bool = True
    """Whether something came to be remembered, or is no more."""
    blindness: str = ""
    """Why there may be sockets and repositories that are not among these, and what to remove; empty: there are none."""

    @property
    def is_cut(self) -> bool:
        """Whether a bound was reached."""
        return BEYOND in self.closed.values()


@dataclass(slots=True)  # not frozen: those take four times as long to make
class _Folder:
    """A directory to look into. It holds its own name only: the whole path of each would be room to flood."""

    above: "_Folder | None"
    name: bytes
    is_left_out: bool = False
    is_trusted: bool = False
    in_git: bool = False
    """Whether it is a `.git` or lies in one: nothing but sockets and the like is looked for."""

    @property
    def path(self) -> bytes:
        names = []
        here: _Folder | None = self
        while here is not None and here.above is not None:
            names.append(here.name)
            here = here.above
        return b"/".join(reversed(names))


def survey(
    root: Path,
    *,
    gathers: bool = True,
    known: Names | None = None,
    leave_out: Container[bytes] = (),
    shut: Container[bytes] | None = None,
    remembered: Remembered | None = None,
    began_ns: int | None = None,
) -> Survey:
    """Look over the tree at `root`; links are not entered. A root that cannot be read is `closed`.

    Args:
        root: The directory.
        gathers: Whether all files are wanted.
        known: Files that are not wanted.
        leave_out: Directories, ending in a slash, whose files are not wanted.
        shut: Directories on which the owner's rights stay as they are; on others, what is needed to look is
            given back. None: on all.
        remembered: What is known from earlier looks: directories that are as they were are not read again. Is
            brought up to date.
        began_ns: When the first look at it began that what is remembered is part of; default: now.
    """
    remembered = remembered or Remembered()
    if remembered.read_as != _READ_AS:
        remembered.read_as, remembered.folders = _READ_AS, {}
    unlock = 0 if shut is None else stat.S_IRUSR | stat.S_IXUSR
    try:
        with Tree(root, unlock=unlock, shut=shut or ()) as tree:
            folders = Folders(tree.directory(b""), remembered, began_ns or time.time_ns())
            surveyor = _Surveyor(tree, folders, leave_out, gathers=gathers, known=known)
            surveyor.look_over()
            surveyor.found.unlocked = tuple(tree.unlocked)
            surveyor.found.recalled = folders.recalled
            surveyor.found.is_news = folders.end()
            return surveyor.found
    except OSError as exc:
        return Survey(closed={ELSEWHERE: _reason(exc)}, blindness=f"the workspace: {_reason(exc)}")


class _Surveyor:
    def __init__(
        self, tree: Tree, folders: Folders, leave_out: Container[bytes], *, gathers: bool, known: Names | None
    ) -> None:
        self.found = Survey()
        self._known = known or Names({})
        self._tree = tree
        self._folders = folders
        self._leave_out = leave_out
        self._pending = [_Folder(None, b"", is_left_out=not gathers)]
        # The last: what is in them takes no room from what lies in the open.
        self._pending_git: list[_Folder] = []
        self._entries_left = MAX_ENTRIES
        self._pending_left = _MAX_PENDING_BYTES
        self._files_left = MAX_NAMES_BYTES
        self._watched_left: Counter[int] = Counter()
        self._parts: set[str] = set()
        self._crowds: Counter[bytes] = Counter()
        """Entries below each directory at the top."""

    def look_over(self) -> None:
        while pending := self._pending or self._pending_git:
            folder = pending.pop()
            path = folder.path
            self._pending_left += len(folder.name) + _PATH_COST_BYTES
            if self._entries_left < 0:
                self._give_up_on(path)
                continue
            self._parts.clear()
            held = self._folders.recall(path)
            if held is not None:
                self._take_in(folder, path, held)
            else:
                self._folders.is_same = self._folders.is_same and folder.in_git
                try:
                    for part in self._read(folder, path):
                        self._take_in(folder, path, part)
                except OSError as exc:
                    self._note_unreadable(folder, path, exc)
            if self._entries_left < 0:
                self._give_up_on(path)
        if self.found.blindness == BEYOND:
            self.found.blindness = self._crowd()

    def _read(self, folder: _Folder, path: bytes) -> Iterator[Held]:
        """What a directory holds, in parts of a bounded size; one entry too many tells that not all was looked at."""
        fd = self._tree.directory(path)
        status = os.fstat(fd)
        with os.scandir(fd) as entries:
            left = itertools.islice(entries, self._entries_left + 1)
            part = self._read_part(folder, left)
            if part.count < _AT_ONCE and part.count <= self._entries_left:
                part.inode, part.ctime_ns = status.st_ino, status.st_ctime_ns
                self._folders.note(path, status, part)
            while part.count:
                yield part
                part = self._read_part(folder, left)

    @staticmethod
    def _read_part(folder: _Folder, entries: Iterable[os.DirEntry[str]]) -> Held:
        plain: list[str] = []
        others: list[tuple[bytes, int]] = []
        is_plain = not folder.is_trusted and not folder.in_git
        count = 0
        for count, entry in enumerate(itertools.islice(entries, _AT_ONCE), 1):  # noqa: B007 - used after the loop
            name = entry.name
            # The hot path: fifty thousand times in a large workspace.
            if is_plain and entry.is_file(follow_symlinks=False) and name.lower() not in _WATCHED_NAMES:
                plain.append(name)
            elif (kind := _kind_of(entry)) in (DIRECTORY, SPECIAL) or not folder.in_git:
                others.append((os.fsencode(name), kind))
        plain.sort()
        return Held(0, 0, count, os.fsencode("\0".join(plain)), others)

    def _take_in(self, folder: _Folder, path: bytes, held: Held) -> None:
        self._entries_left -= held.count
        self._crowds[path.partition(b"/")[0]] += held.count
        prefix = path + b"/" if path else b""
        if held.plain and not folder.is_left_out:
            new = self._known.besides(path, held.plain)
            if new:
                self._gather_all([prefix + name for name in new], path)
        for name, kind in held.others:
            if folder.in_git:
                self._look_at_inner(name, kind, prefix + name, folder)
            else:
                self._look_at(name, kind, folder, prefix + name)
        if not folder.in_git and "head" in self._parts and self._parts & {"objects", "refs", "commondir"}:
            for part in (b"HEAD", b"config"):
                self._keep(prefix + part, self.found.repositories)

    def _look_at(self, name: bytes, kind: int, folder: _Folder, path: bytes) -> None:
        lowered = os.fsdecode(name).lower()
        trusts = folder.is_trusted or (lowered in TRUSTED_NAMES and is_trusted(os.fsdecode(path)))
        if lowered in _REPOSITORY_NAMES:
            self._parts.add(lowered)
        if name == b".git":
            self._look_at_git(kind, path, folder)
        elif kind == DIRECTORY:
            is_left_out = folder.is_left_out or path + b"/" in self._leave_out
            inner = _Folder(folder, name, is_left_out=is_left_out, is_trusted=trusts)
            self._put_off(inner, self._pending)
        else:
            if not folder.is_left_out and path not in self._known:
                self._gather(path, path.rpartition(b"/")[0], self.found.files)
            if trusts:
                self._keep(path, self.found.trusted)
            if name == b".gitignore":
                self._keep(path, self.found.ignore_files)
            if kind == SPECIAL:
                self._keep(path, self.found.specials)

    def _look_at_git(self, kind: int, path: bytes, folder: _Folder) -> None:
        if folder.above is not None:
            self._keep(path, self.found.git_entries)
        self._look_at_inner(b".git", kind, path, folder)

    def _look_at_inner(self, name: bytes, kind: int, path: bytes, folder: _Folder) -> None:
        # Git's own daemon listens in a git directory, and what else may, anywhere below.
        if kind == DIRECTORY:
            self._put_off(_Folder(folder, name, is_left_out=True, in_git=True), self._pending_git)
        elif kind == SPECIAL:
            self._keep(path, self.found.specials)

    def _put_off(self, folder: _Folder, pending: list[_Folder]) -> None:
        self._pending_left -= len(folder.name) + _PATH_COST_BYTES
        if self._pending_left < 0:
            self._pending_left += len(folder.name) + _PATH_COST_BYTES
            self._give_up_on(folder.path)
        else:
            pending.append(folder)

    def _gather(self, path: bytes, folder: bytes, files: set[bytes]) -> None:
        """Take a file; where there is no room for more, its directory is told and the look goes on for the rest."""
        if self._files_left < 0:
            self._close(folder, BEYOND)
        else:
            files.add(path)
            self._files_left -= len(path) + _PATH_COST_BYTES

    def _gather_all(self, paths: list[bytes], folder: bytes) -> None:
        size = sum(map(len, paths)) + _PATH_COST_BYTES * len(paths)
        if size <= self._files_left:
            self.found.files.update(paths)
            self._files_left -= size
        else:
            for path in paths:
                self._gather(path, folder, self.found.files)

    def _keep(self, path: bytes, among: set[bytes]) -> None:
        self._watched_left[id(among)] += len(path) + _PATH_COST_BYTES
        if self._watched_left[id(among)] <= _MAX_WATCHED_BYTES:
            among.add(path)
        elif among is self.found.specials or among is self.found.git_entries:
            self._give_up_on(path.rpartition(b"/")[0])
        else:
            self._close(path.rpartition(b"/")[0], BEYOND)

    def _give_up_on(self, folder: bytes) -> None:
        """What must be covered or guarded may lie there."""
        self.found.blindness = self.found.blindness or BEYOND
        self._close(folder, BEYOND)

    def _note_unreadable(self, folder: _Folder, path: bytes, error: OSError) -> None:
        if error.errno == errno.ENAMETOOLONG:
            self._close(path, TOO_DEEP)
            self.found.blindness = f"{_shown(path)} lies more than {MAX_DEPTH} directories deep, remove it"
        # A git directory is guarded as a whole: what is shut in it stays shut.
        elif (not folder.in_git or folder.name == b".git") and not self._close(path, _reason(error)):
            self.found.blindness = (
                f"{_shown(path)} and others: {_reason(error)}; give the right to, or remove them"
            )

    def _close(self, folder: bytes, why: str) -> bool:
        """Name a directory that was not looked into; whether it could be named."""
        is_named = bool(folder) and len(self.found.closed) < _MAX_NAMED
        self.found.closed.setdefault(folder + b"/" if is_named else ELSEWHERE, why)
        return is_named

    def _crowd(self) -> str:
        (top, count), *_ = self._crowds.most_common(1)
        place = f"below {_shown(top)}" if top else "at its top"
        return (
            f"more lies in it than is looked at, {count} entries of it {place}: remove what need not be there"
        )


def _shown(path: bytes) -> str:
    text = os.fsdecode(path)
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}...")


def _kind_of(entry: os.DirEntry[str]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return DIRECTORY
    if entry.is_symlink():
        return LINK
    return FILE if entry.is_file(follow_symlinks=False) else SPECIAL


def _reason(error: OSError) -> str:
    return f"{UNREADABLE}: {(error.strerror or str(error)).lower()}"
