"""Walks over a whole tree: finds its files, those that changed, special files, nested repositories, and gaps.

An agent may have worked there, so git is not used: files on its way (a fifo called `.gitignore`, rules that take
forever, gigabytes of names) could keep it from ever finishing. Everything collected here is bounded, and paths beyond a
bound are named.
"""

import errno
import itertools
import os
import stat
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.sandbox.workspace.protect.flags import AUTO_EXECUTED_NAMES, is_auto_executed
from ringfence.sandbox.workspace.snapshot.stat_cache import Entry, Folders
from ringfence.sandbox.workspace.tree import GONE, MAX_DEPTH, SET_ID, Tree, may_be_hollow

MAX_ENTRIES = 2_000_000
MAX_NAMES_BYTES = 64 * 1024**2
"""Limit for the paths of files: about their size in memory."""
ELSEWHERE = b"./"
"""Stands for directories that are too many to be named, anywhere in the workspace."""
BEYOND = "beyond the number of files that are looked at"
TOO_DEEP = "nested too deep to be looked at"
UNREADABLE = "the directory cannot be read"
NO_FILE = "neither a file nor a link"
"""Why a fifo, socket or device is not covered."""
_MAX_WATCHED_BYTES = 16 * 1024**2
"""Limit for the paths of each watched kind, so that a flood of one kind does not displace another."""
_MAX_PENDING_BYTES = 128 * 1024**2
"""Limit for the names of directories still to be visited."""
_PATH_COST_BYTES = 128
_AT_ONCE = 100_000
"""Number of entries of one directory that are held at a time."""
_MAX_NAMED = 1000
_SHOWN_LENGTH = 200
_REPOSITORY_NAMES = frozenset({"head", "objects", "refs", "commondir"})
"""Entries by which git takes a directory for a repository, whatever its name (gitrepository-layout(5))."""
_WATCHED_NAMES = AUTO_EXECUTED_NAMES | _REPOSITORY_NAMES | {".git", ".gitignore"}


@dataclass
class Walk:
    """The result of a walk; paths are bytes relative to the root."""

    new: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Files and links that are not in the cache: by directory, the names in it, separated by NUL."""
    lost: set[bytes] = field(default_factory=set)
    """Files in the cache that were removed or changed."""
    suspects: dict[bytes, int] = field(default_factory=dict)
    """Files that must be read, and their sizes; for sparse files, which are not read, the size on disk."""
    skipped: dict[bytes, str] = field(default_factory=dict)
    """Files that are not covered, and directories (ending in a slash) not visited completely, and why."""
    linked: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Files with more than one hard link: the inode, and the number of links."""
    set_id: set[bytes] = field(default_factory=set)
    """Files among `suspects` with a set-user-ID or set-group-ID bit."""
    git_entries: set[bytes] = field(default_factory=set)
    """Every `.git` below the root's own, at any depth."""
    ignore_files: set[bytes] = field(default_factory=set)
    """Every `.gitignore` in any directory."""
    trusted: set[bytes] = field(default_factory=set)
    """Files in any directory that the host runs or trusts because of their name."""
    specials: set[bytes] = field(default_factory=set)
    """Sockets, fifos and devices in any directory."""
    repositories: set[bytes] = field(default_factory=set)
    """HEAD and config of directories that git takes for a repository though they are not called `.git`."""
    unlocked: tuple[bytes, ...] = ()
    """Directories on which the owner's rights were restored; empty for the root."""
    blindness: str = ""
    """Why these lists may lack sockets and repositories, and what to remove; empty if they are complete."""
    _named_count: int = 0
    """Number of directories among `skipped`."""

    @property
    def is_cut(self) -> bool:
        """Whether a bound was reached."""
        return BEYOND in self.skipped.values()

    def new_folders(self, always: Container[bytes] = ()) -> set[bytes]:
        """The directories of new files, except files in `always`, and the directories above them, except the root."""
        folders: set[bytes] = set()
        for folder, names in self.new:
            if always and all(folder + b"/" + name in always for name in names.split(b"\0")):
                continue
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition(b"/")[0]
        return folders

    def new_files(self, ignored: Container[bytes], always: Container[bytes]) -> set[bytes]:
        """Return the paths of the new files, as far as they fit.

        Args:
            ignored: Directories whose files are left out...
            always: ... but for these.
        """
        paths: set[bytes] = set()
        room = MAX_NAMES_BYTES
        for folder, names in self.new:
            prefix = folder + b"/" if folder else b""
            if folder in ignored:
                paths.update(path for name in names.split(b"\0") if (path := prefix + name) in always)
                continue
            count = names.count(b"\0") + 1
            room -= len(names) + count * (len(folder) + _PATH_COST_BYTES)
            if room < 0:
                self.close(folder, BEYOND)
                continue
            paths.update([prefix + name for name in names.split(b"\0")])
        return paths

    def suspect(self, path: bytes, status: os.stat_result) -> None:
        """Note a file that must be read; skip anything that is not a file."""
        self.note_links(path, status)
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            self.suspects[path] = status.st_blocks * 512 if may_be_hollow(status) else status.st_size
            if stat.S_ISREG(status.st_mode) and status.st_mode & SET_ID:
                self.set_id.add(path)
        elif not stat.S_ISDIR(status.st_mode):
            self.skipped[path] = NO_FILE

    def note_links(self, path: bytes, status: os.stat_result) -> None:
        """Remember a file that has several names."""
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            self.linked[path] = (status.st_ino, status.st_nlink)

    def note_unread(self, path: bytes, error: OSError) -> None:
        """Skip a file whose status cannot be read; one that is gone is not skipped."""
        if error.errno not in GONE:
            self.skipped[path] = os.strerror(error.errno or 0).lower()

    def look_at(self, tree: Tree, paths: Iterable[bytes]) -> None:
        """Add files that the walk did not compare to those that must be read."""
        for path in sorted(paths):
            try:
                status = tree.lstat(path)
            except OSError as exc:
                self.note_unread(path, exc)
            else:
                if status is not None:
                    self.suspect(path, status)

    def drop(self, paths: Iterable[bytes]) -> None:
        """Remove files that are not covered."""
        for path in paths:
            self.lost.add(path)
            self.suspects.pop(path, None)
            self.skipped.pop(path, None)
            self.linked.pop(path, None)
            self.set_id.discard(path)

    def cut(self, limit_bytes: int, first: Container[bytes]) -> None:
        """Skip files beyond a limit, preferring to keep the files in `first`."""
        total = 0
        for path in sorted(self.suspects, key=lambda path: (path not in first, path)):
            total += self.suspects[path]
            if total > limit_bytes:
                del self.suspects[path]
                self.skipped[path] = f"beyond {limit_bytes} bytes in all"

    def close(self, folder: bytes, why: str) -> bool:
        """Name a directory that was not visited; return whether it could be named."""
        place = folder + b"/" if folder and self._named_count < _MAX_NAMED else ELSEWHERE
        self._named_count += place not in self.skipped
        self.skipped.setdefault(place, why)
        return place != ELSEWHERE


def walk(
    root: Path,
    *,
    cached: Folders | None = None,
    gathers: bool = True,
    leave_out: Container[bytes] = (),
    covered: Container[bytes] = (),
    shut: Container[bytes] | None = None,
) -> Walk:
    """Walk over the tree at `root` without following links. A root that cannot be read is `skipped`.

    Args:
        root: The directory.
        cached: Files whose status is compared.
        gathers: Whether to collect new files.
        leave_out: Directories, ending in a slash, whose new files are not collected.
        covered: Files that are collected in any directory.
        shut: Directories on which the owner's rights stay as they are; on others, the rights needed to read them are
        restored. None: they stay on all.
    """
    unlock = 0 if shut is None else stat.S_IRUSR | stat.S_IXUSR
    cached = cached or {}
    try:
        with Tree(root, unlock=unlock, shut=shut or ()) as tree:
            walker = _Walker(tree, cached, leave_out, covered, gathers=gathers)
            walker.walk()
            walker.found.unlocked = tuple(tree.unlocked)
            return walker.found
    except OSError as exc:
        reason = _reason(exc)
        lost = {folder + b"/" + name if folder else name for folder in cached for name in cached[folder]}
        return Walk(lost=lost, skipped={ELSEWHERE: reason}, blindness=f"the workspace: {reason}")


@dataclass(slots=True)  # not frozen, as those take four times as long to create
class _Folder:
    """A directory to visit. It holds only its own name: whole paths could be used to flood the memory."""

    above: "_Folder | None"
    name: bytes
    is_left_out: bool = False
    is_auto_executed: bool = False
    in_git: bool = False
    """Whether it is a `.git` or is in one, where only special files are searched for."""

    @property
    def path(self) -> bytes:
        names = []
        here: _Folder | None = self
        while here is not None and here.above is not None:
            names.append(here.name)
            here = here.above
        return b"/".join(reversed(names))


class _Walker:
    def __init__(
        self,
        tree: Tree,
        cached: Folders,
        leave_out: Container[bytes],
        covered: Container[bytes],
        *,
        gathers: bool,
    ) -> None:
        self.found = Walk()
        self._tree = tree
        self._cached = cached
        self._unvisited = set(cached)
        self._leave_out = leave_out
        self._covered = covered
        self._pending = [_Folder(None, b"", is_left_out=not gathers)]
        # Last, so that their contents do not displace paths elsewhere.
        self._pending_git: list[_Folder] = []
        self._entries_left = MAX_ENTRIES
        self._pending_left = _MAX_PENDING_BYTES
        self._names_left = MAX_NAMES_BYTES
        self._watched_left: Counter[int] = Counter()
        self._parts: set[str] = set()
        self._crowds: Counter[bytes] = Counter()
        """Number of entries below each directory at the top."""

    def walk(self) -> None:
        while pending := self._pending or self._pending_git:
            folder = pending.pop()
            path = folder.path
            self._pending_left += len(folder.name) + _PATH_COST_BYTES
            if self._entries_left >= 0:
                self._parts.clear()
                try:
                    self._read(folder, path)
                except OSError as exc:
                    self._note_unreadable(folder, path, exc)
            if self._entries_left < 0:
                self._give_up_on(path)
        if self.found.blindness == BEYOND:
            self.found.blindness = self._crowd()
        for path in self._unvisited:
            self._lose(path, self._cached[path])

    def _read(self, folder: _Folder, path: bytes) -> None:
        """Visit a directory in parts of a bounded size; one entry too many means that it was not visited completely."""
        fd = self._tree.directory(path)
        cached = {} if folder.in_git else self._cached.get(path, {})
        unseen = set(cached)
        with os.scandir(fd) as entries:
            left = itertools.islice(entries, self._entries_left + 1)
            count = _AT_ONCE
            while count == _AT_ONCE:
                count, names = self._read_part(folder, path, left)
                unseen.difference_update(names)
                self._compare(folder, path, fd, names, cached)
        if cached:
            self._lose(path, unseen)
            self._unvisited.discard(path)
        if "head" in self._parts and self._parts & {"objects", "refs", "commondir"}:
            for part in (b"HEAD", b"config"):
                self._keep(path + b"/" + part if path else part, self.found.repositories)

    def _read_part(
        self, folder: _Folder, path: bytes, entries: Iterator[os.DirEntry[str]]
    ) -> tuple[int, list[bytes]]:
        """Return the number of the next entries, and the names of files and links among them."""
        names: list[bytes] = []
        is_plain, in_git = not folder.is_auto_executed, folder.in_git
        encode = os.fsencode  # looked up once, as it is called fifty thousand times
        count = 0
        for count, entry in enumerate(itertools.islice(entries, _AT_ONCE), 1):  # noqa: B007 - used after the loop
            is_file = entry.is_file(follow_symlinks=False)
            if is_file and in_git:
                continue
            if (is_file and is_plain and entry.name.lower() not in _WATCHED_NAMES) or self._look_at(
                entry, folder, path
            ):
                names.append(encode(entry.name))
        self._entries_left -= count
        self._crowds[path.partition(b"/")[0]] += count
        return count, names

    def _compare(
        self, folder: _Folder, path: bytes, fd: int, names: list[bytes], cached: dict[bytes, Entry]
    ) -> None:
        """Compare the status of each file with its entry in the cache; files without an entry are new."""
        found, prefix = self.found, path + b"/" if path else b""
        new: list[bytes] = []
        look = os.stat
        for name in names:
            was = cached.get(name)
            if was is None:
                new.append(name)
                continue
            try:
                status = look(name, dir_fd=fd, follow_symlinks=False)
            except OSError as exc:
                found.lost.add(prefix + name)
                found.note_unread(prefix + name, exc)
                continue
            if status.st_ctime_ns != was.ctime_ns or status.st_ino != was.inode or status.st_size != was.size:
                found.lost.add(prefix + name)
                found.suspect(prefix + name, status)
            elif status.st_nlink > 1:
                found.note_links(prefix + name, status)
        if folder.is_left_out:
            new = [name for name in new if prefix + name in self._covered]
        if new:
            self._gather(path, b"\0".join(new))

    def _gather(self, folder: bytes, names: bytes) -> None:
        """Collect new files; if there is no room for more, name their directory and continue."""
        self._names_left -= len(folder) + len(names) + _PATH_COST_BYTES
        if self._names_left < 0:
            self.found.close(folder, BEYOND)
        else:
            self.found.new.append((folder, names))

    def _lose(self, folder: bytes, names: Iterable[bytes]) -> None:
        prefix = folder + b"/" if folder else b""
        self.found.lost.update([prefix + name for name in names])

    def _look_at(self, entry: os.DirEntry[str], folder: _Folder, above: bytes) -> bool:
        """Note the relevant facts about an entry; return whether it is a file or link that may be covered."""
        name = os.fsencode(entry.name)
        path = above + b"/" + name if above else name
        is_dir = entry.is_dir(follow_symlinks=False)
        is_special = not (is_dir or entry.is_symlink() or entry.is_file(follow_symlinks=False))
        if name == b".git" and folder.above is not None and not folder.in_git:
            self._keep(path, self.found.git_entries)
        if is_special:
            self._keep(path, self.found.specials)
        if folder.in_git or name == b".git":
            # Git's own daemon listens in a git directory, and other programs may, anywhere below.
            if is_dir:
                self._put_off(_Folder(folder, name, is_left_out=True, in_git=True), self._pending_git)
            return False
        is_trusted_here = self._watch(entry.name.lower(), path, folder, is_dir=is_dir)
        if is_dir:
            is_left_out = folder.is_left_out or path + b"/" in self._leave_out
            self._put_off(_Folder(folder, name, is_left_out, is_trusted_here), self._pending)
        return not is_dir and not is_special

    def _watch(self, lowered: str, path: bytes, folder: _Folder, *, is_dir: bool) -> bool:
        """Note an entry whose name matters to git or the host; return whether the host trusts it."""
        if lowered in _REPOSITORY_NAMES:
            self._parts.add(lowered)
        trusts = folder.is_auto_executed or (
            lowered in AUTO_EXECUTED_NAMES and is_auto_executed(os.fsdecode(path))
        )
        if trusts and not is_dir:
            self._keep(path, self.found.trusted)
        if path.rpartition(b"/")[2] == b".gitignore" and not is_dir:
            self._keep(path, self.found.ignore_files)
        return trusts

    def _put_off(self, folder: _Folder, pending: list[_Folder]) -> None:
        self._pending_left -= len(folder.name) + _PATH_COST_BYTES
        if self._pending_left < 0:
            self._pending_left += len(folder.name) + _PATH_COST_BYTES
            self._give_up_on(folder.path)
        else:
            pending.append(folder)

    def _keep(self, path: bytes, among: set[bytes]) -> None:
        self._watched_left[id(among)] += len(path) + _PATH_COST_BYTES
        if self._watched_left[id(among)] <= _MAX_WATCHED_BYTES:
            among.add(path)
        elif among is self.found.specials or among is self.found.git_entries:
            self._give_up_on(path.rpartition(b"/")[0])
        else:
            self.found.close(path.rpartition(b"/")[0], BEYOND)

    def _give_up_on(self, folder: bytes) -> None:
        """Note that files that must be covered or guarded may be there."""
        self.found.blindness = self.found.blindness or BEYOND
        self.found.close(folder, BEYOND)

    def _note_unreadable(self, folder: _Folder, path: bytes, error: OSError) -> None:
        if error.errno == errno.ENAMETOOLONG:
            self.found.close(path, TOO_DEEP)
            self.found.blindness = f"{_shown(path)} lies more than {MAX_DEPTH} directories deep, remove it"
        # A git directory is guarded as a whole: directories in it stay closed.
        elif (not folder.in_git or folder.name == b".git") and not self.found.close(path, _reason(error)):
            self.found.blindness = (
                f"{_shown(path)} and others: {_reason(error)}; give the right to, or remove them"
            )

    def _crowd(self) -> str:
        (top, count), *_ = self._crowds.most_common(1)
        place = f"below {_shown(top)}" if top else "at its top"
        return (
            f"more lies in it than is looked at, {count} entries of it {place}: remove what need not be there"
        )


def _shown(path: bytes) -> str:
    text = os.fsdecode(path)
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}...")


def _reason(error: OSError) -> str:
    return f"{UNREADABLE}: {(error.strerror or str(error)).lower()}"
