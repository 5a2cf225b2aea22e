"""A look over a whole tree by our own hand: what is there, of which kind, and what could not be looked at.

An agent may have worked there, so git is not asked: what it meets on its way (a fifo called `.gitignore`,
rules that take for ever, gigabytes of names) would decide whether it ever answers. All that is gathered here
is bounded, and what lies beyond a bound is named.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.sandbox.workspace.protected import TRUSTED_NAMES, is_trusted
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
_MAX_NAMED = 1000
_SHOWN_LENGTH = 200
_REPOSITORY_NAMES = frozenset({"head", "objects", "refs", "commondir"})
"""What git takes a directory for a repository by, whatever the directory is called (gitrepository-layout(5))."""
_WATCHED_NAMES = TRUSTED_NAMES | _REPOSITORY_NAMES | {".git", ".gitignore"}


@dataclass
class Survey:
    """What was found; paths are bytes relative to the root."""

    files: set[bytes] = field(default_factory=set)
    """Everything but directories, outside of the places left out."""
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

    blindness: str = ""
    """Why there may be sockets and repositories that are not among these, and what to remove; empty: there are none."""

    @property
    def is_cut(self) -> bool:
        """Whether a bound was reached."""
        return BEYOND in self.closed.values()


@dataclass(frozen=True, slots=True)
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
    leave_out: Container[bytes] = (),
    shut: Container[bytes] | None = None,
) -> Survey:
    """Look over the tree at `root`; links are not entered. A root that cannot be read is `closed`.

    Args:
        root: The directory.
        gathers: Whether all files are wanted.
        leave_out: Directories, ending in a slash, whose files are not wanted.
        shut: Directories on which the owner's rights stay as they are; on others, what is needed to look is
            given back. None: on all.
    """
    unlock = 0 if shut is None else stat.S_IRUSR | stat.S_IXUSR
    try:
        with Tree(root, unlock=unlock, shut=shut or ()) as tree:
            surveyor = _Surveyor(tree, leave_out, gathers=gathers)
            surveyor.look_over()
            surveyor.found.unlocked = tuple(tree.unlocked)
            return surveyor.found
    except OSError as exc:
        return Survey(closed={ELSEWHERE: _reason(exc)}, blindness=f"the workspace: {_reason(exc)}")


class _Surveyor:
    def __init__(self, tree: Tree, leave_out: Container[bytes], *, gathers: bool) -> None:
        self.found = Survey()
        self._tree = tree
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
            before = self._entries_left
            try:
                with os.scandir(self._tree.directory(path)) as entries:
                    self._look_into(folder, path, entries)
            except OSError as exc:
                self._note_unreadable(folder, path, exc)
            self._crowds[path.partition(b"/")[0]] += before - self._entries_left
        if self.found.blindness == BEYOND:
            self.found.blindness = self._crowd()

    def _look_into(self, folder: _Folder, path: bytes, entries: Iterable[os.DirEntry[str]]) -> None:
        files, gathers = self.found.files, not folder.is_left_out
        is_plain = not folder.is_trusted and not folder.in_git
        prefix = path + b"/" if path else b""
        self._parts.clear()
        for entry in entries:
            self._entries_left -= 1
            if self._entries_left < 0:
                self._give_up_on(path)
                return
            name = entry.name
            # The hot path: fifty thousand times in a large workspace.
            if is_plain and entry.is_file(follow_symlinks=False) and name.lower() not in _WATCHED_NAMES:
                if gathers:
                    self._gather(prefix + os.fsencode(name), path, files)
            elif folder.in_git:
                self._look_at_inner(entry, prefix + os.fsencode(name), folder)
            else:
                self._look_at(entry, prefix + os.fsencode(name), folder)
        if not folder.in_git and "head" in self._parts and self._parts & {"objects", "refs", "commondir"}:
            for part in (b"HEAD", b"config"):
                self._keep(prefix + part, self.found.repositories)

    def _look_at(self, entry: os.DirEntry[str], path: bytes, folder: _Folder) -> None:
        name = entry.name
        lowered = name.lower()
        trusts = folder.is_trusted or (lowered in TRUSTED_NAMES and is_trusted(os.fsdecode(path)))
        if lowered in _REPOSITORY_NAMES:
            self._parts.add(lowered)
        if name == ".git":
            self._look_at_git(entry, path, folder)
        elif entry.is_dir(follow_symlinks=False):
            is_left_out = folder.is_left_out or path + b"/" in self._leave_out
            inner = _Folder(folder, os.fsencode(name), is_left_out=is_left_out, is_trusted=trusts)
            self._put_off(inner, self._pending)
        else:
            if not folder.is_left_out:
                self._gather(path, path.rpartition(b"/")[0], self.found.files)
            if trusts:
                self._keep(path, self.found.trusted)
            if name == ".gitignore":
                self._keep(path, self.found.ignore_files)
            if _is_special(entry):
                self._keep(path, self.found.specials)

    def _look_at_git(self, entry: os.DirEntry[str], path: bytes, folder: _Folder) -> None:
        if folder.above is not None:
            self._keep(path, self.found.git_entries)
        self._look_at_inner(entry, path, folder)

    def _look_at_inner(self, entry: os.DirEntry[str], path: bytes, folder: _Folder) -> None:
        # Git's own daemon listens in a git directory, and what else may, anywhere below.
        if entry.is_dir(follow_symlinks=False):
            self._put_off(_Folder(folder, os.fsencode(entry.name), in_git=True), self._pending_git)
        elif _is_special(entry):
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


def _is_special(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file(follow_symlinks=False) and not entry.is_symlink()


def _reason(error: OSError) -> str:
    return f"{UNREADABLE}: {(error.strerror or str(error)).lower()}"
