"""A look over a whole tree by our own hand: what is there, of which kind, and what could not be looked at.

An agent may have worked there, so git is not asked: what it meets on its way (a fifo called `.gitignore`,
rules that take for ever, gigabytes of names) would decide whether it ever answers. All that is gathered here
is bounded, and what lies beyond a bound is named.
"""

import os
import stat
from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ringfence.sandbox.workspace.protected import TRUSTED_NAMES, is_trusted
from ringfence.sandbox.workspace.tree import Tree

MAX_ENTRIES = 2_000_000
MAX_NAMES_BYTES = 64 * 1024**2
"""Of the paths of files, and of directories: what is held of them in memory, about."""
ELSEWHERE = b"./"
"""Stands for directories that are too many to be named: anywhere in the workspace."""
_PATH_COST_BYTES = 128
_MAX_NAMED = 1000
_MAX_IN_GIT = 10_000
BEYOND = "beyond the number of files that are looked at"
_WATCHED_NAMES = TRUSTED_NAMES | {".git", ".gitignore"}


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
    closed: dict[bytes, str] = field(default_factory=dict)
    """Directories, ending in a slash, that were not looked into or not to their end, and why."""
    unlocked: tuple[bytes, ...] = ()
    """Directories on which the owner was given rights back; empty for the root."""

    @property
    def is_cut(self) -> bool:
        """Whether a bound was reached."""
        return BEYOND in self.closed.values()


@dataclass(frozen=True)
class _Folder:
    path: bytes
    is_left_out: bool
    is_trusted: bool


def survey(
    root: Path,
    *,
    gathers: bool = True,
    leave_out: Container[bytes] = (),
    shut: Container[bytes] | None = None,
) -> Survey:
    """Look over the tree at `root`; `.git` and links are not entered. A root that cannot be read is `closed`.

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
        return Survey(closed={ELSEWHERE: _reason(exc)})


class _Surveyor:
    def __init__(self, tree: Tree, leave_out: Container[bytes], *, gathers: bool) -> None:
        self.found = Survey()
        self._tree = tree
        self._leave_out = leave_out
        self._pending = [_Folder(b"", is_left_out=not gathers, is_trusted=False)]
        self._entries_left = MAX_ENTRIES
        self._room = MAX_NAMES_BYTES

    def look_over(self) -> None:
        while self._pending:
            folder = self._pending.pop()
            if self._is_full:
                self._close(folder.path, BEYOND)
                continue
            try:
                with os.scandir(self._tree.directory(folder.path)) as entries:
                    self._look_into(folder, entries)
            except OSError as exc:
                self._close(folder.path, _reason(exc))

    @property
    def _is_full(self) -> bool:
        return self._entries_left < 0 or self._room < 0

    def _look_into(self, folder: _Folder, entries: Iterable[os.DirEntry[str]]) -> None:
        files, gathers, is_plain = self.found.files, not folder.is_left_out, not folder.is_trusted
        prefix = folder.path + b"/" if folder.path else b""
        for entry in entries:
            self._entries_left -= 1
            if self._entries_left < 0 or self._room < 0:
                self._close(folder.path, BEYOND)
                return
            name = entry.name
            # The hot path: fifty thousand times in a large workspace.
            if is_plain and entry.is_file(follow_symlinks=False) and name.lower() not in _WATCHED_NAMES:
                if gathers:
                    path = prefix + os.fsencode(name)
                    files.add(path)
                    self._room -= len(path) + _PATH_COST_BYTES
            else:
                self._look_at(entry, prefix + os.fsencode(name), folder)

    def _look_at(self, entry: os.DirEntry[str], path: bytes, folder: _Folder) -> None:
        name = entry.name
        trusts = folder.is_trusted or (name.lower() in TRUSTED_NAMES and is_trusted(os.fsdecode(path)))
        if name == ".git":
            self._look_at_git(entry, path, folder)
        elif entry.is_dir(follow_symlinks=False):
            is_left_out = folder.is_left_out or path + b"/" in self._leave_out
            self._pending.append(_Folder(path, is_left_out=is_left_out, is_trusted=trusts))
            self._room -= len(path) + _PATH_COST_BYTES
        else:
            if not folder.is_left_out:
                self._keep(path, self.found.files)
            if trusts:
                self._keep(path, self.found.trusted)
            if name == ".gitignore":
                self._keep(path, self.found.ignore_files)
            if _is_special(entry):
                self._keep(path, self.found.specials)

    def _look_at_git(self, entry: os.DirEntry[str], path: bytes, folder: _Folder) -> None:
        if folder.path:
            self._keep(path, self.found.git_entries)
        if not entry.is_dir(follow_symlinks=False):
            if _is_special(entry):
                self._keep(path, self.found.specials)
            return
        # Git's own daemon listens in there.
        with suppress(OSError), os.scandir(self._tree.directory(path)) as inside:
            for part in islice(inside, _MAX_IN_GIT):
                if not part.is_dir(follow_symlinks=False) and _is_special(part):
                    self._keep(path + b"/" + os.fsencode(part.name), self.found.specials)

    def _keep(self, path: bytes, among: set[bytes]) -> None:
        among.add(path)
        self._room -= len(path) + _PATH_COST_BYTES

    def _close(self, folder: bytes, why: str) -> None:
        named = folder + b"/" if folder and len(self.found.closed) < _MAX_NAMED else ELSEWHERE
        self.found.closed.setdefault(named, why)


def _is_special(entry: os.DirEntry[str]) -> bool:
    return not entry.is_file(follow_symlinks=False) and not entry.is_symlink()


def _reason(error: OSError) -> str:
    return f"the directory cannot be read: {(error.strerror or str(error)).lower()}"
