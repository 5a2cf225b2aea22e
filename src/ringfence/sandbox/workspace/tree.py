"""Accesses a directory tree by descriptors only, so that a link on a path is never followed.

Paths are bytes relative to the root, separated by `/`, without `.` and `..`. Calls block; run them through
`Actor.call`.
"""

import errno
import os
import secrets
import stat
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfence.removal import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
SET_ID = stat.S_ISUID | stat.S_ISGID
MAX_DEPTH = 256
"""Directories nested deeper are not entered, as each level holds a descriptor open."""
_HOLLOW_FROM_BYTES = 4 * 1024**2
"""A shorter sparse file is read like any other file."""
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors for a path that does not exist, or no longer exists."""


class Tree:
    """The files below one directory.

    Args:
        root: The directory; must not be a link itself.
        unlock: Rights (`stat.S_IRWXU`) that its owner needs on each directory entered. If one is missing all are
        restored, as on a file that cannot be read: an agent may have removed them.
        shut: Paths, directories ending in a slash, where no rights are restored.
        at: A descriptor of the root, by which it is reached instead of by its path; the caller closes it.
    """

    def __init__(
        self,
        root: Path,
        *,
        unlock: int = 0,
        shut: Container[bytes] = frozenset(),
        at: int | None = None,
    ) -> None:
        self.root = root
        self._at = at
        self.unlocked: list[bytes] = []
        """Paths where rights were restored; empty for the root."""
        self._unlock = unlock
        self._shut = shut
        self._fds: list[int] = []
        self._names: list[bytes] = []

    def __enter__(self) -> Self:
        if self._unlock:
            self._give_rights_back(self.root, None, b"")
        self._fds = [os.open(self.root if self._at is None else ".", _DIRECTORY, dir_fd=self._at)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds, self._names = [], []

    def directory(self, path: bytes, *, create: bool = False) -> int:
        """Open the directory at `path`; the descriptor is valid until the next call.

        Raises:
            OSError: It is absent, or a component of the path is not a directory, or may not be entered.
        """
        wanted = path.split(b"/") if path else []
        if len(wanted) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, "nested too deep")
        shared = 0
        while shared < len(self._names) and shared < len(wanted) and self._names[shared] == wanted[shared]:
            shared += 1
        self.close_below(shared)
        for name in wanted[shared:]:
            self._fds.append(self._enter(name, create=create))
            self._names.append(name)
        return self._fds[-1]

    def close_below(self, depth: int = 0) -> None:
        """Close the cached directories below `depth`; needed after some were removed or replaced."""
        while len(self._names) > depth:
            os.close(self._fds.pop())
            self._names.pop()

    def _enter(self, name: bytes, *, create: bool) -> int:
        here = self._fds[-1]
        if create:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=here)
        if not self._unlock:
            return os.open(name, _DIRECTORY, dir_fd=here)
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=here)
        except PermissionError:
            self._give_rights_back(name, here, b"/".join((*self._names, name)))
            return os.open(name, _DIRECTORY, dir_fd=here)
        if os.fstat(fd).st_mode & self._unlock != self._unlock:
            self._give_rights_back(name, here, b"/".join((*self._names, name)))
        return fd

    def _give_rights_back(self, name: bytes | Path, here: int | None, path: bytes) -> None:
        # O_PATH needs no right on the directory itself, and pins the directory to be changed.
        pinned = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        try:
            mode = stat.S_IMODE(os.fstat(pinned).st_mode)
            if mode & self._unlock != self._unlock and path + b"/" not in self._shut:
                self._chmod(pinned, mode | stat.S_IRWXU, path)
        finally:
            os.close(pinned)

    def _chmod(self, pinned: int, mode: int, path: bytes) -> None:
        # A directory of another user stays unchanged; opening it then reports the error.
        with suppress(PermissionError):
            Path(f"/proc/self/fd/{pinned}").chmod(mode)
            self.unlocked.append(path)

    def _open_file(self, fd: int, name: bytes, path: bytes) -> int:
        # O_NONBLOCK: a fifo swapped in after the check must not block this.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(name, flags, dir_fd=fd)
        except PermissionError:
            if not self._unlock or path in self._shut:
                raise
        pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        try:
            status = os.fstat(pinned)
            # A file with another name may be in use elsewhere, so its rights must not be changed.
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                self._chmod(pinned, stat.S_IMODE(status.st_mode) | stat.S_IRUSR | stat.S_IWUSR, path)
        finally:
            os.close(pinned)
        return os.open(name, flags, dir_fd=fd)

    def parent(self, path: bytes, *, create: bool = False) -> tuple[int, bytes]:
        """The descriptor of the parent directory of `path`, and its name there."""
        folder, _, name = path.rpartition(b"/")
        return self.directory(folder, create=create), name

    def lstat(self, path: bytes) -> os.stat_result | None:
        """The status of `path`; None if it does not exist, or if a parent is not a directory."""
        try:
            fd, name = self.parent(path)
            return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError as exc:
            if exc.errno in GONE:
                return None
            raise

    def children(self, path: bytes) -> list[bytes]:
        """Names in the directory at `path`."""
        with os.scandir(self.directory(path)) as entries:
            return [os.fsencode(entry.name) for entry in entries]

    def read(self, path: bytes, limit_bytes: int, *, holes: bool = True) -> tuple[bytes, os.stat_result]:
        """Read a regular file or the target of a link, with its status from before it was read.

        Args:
            path: Its path.
            limit_bytes: Its largest size.
            holes: Whether it may be long and sparse.

        Raises:
            OSError: It cannot be read, is neither (EINVAL), is longer than `limit_bytes` (EFBIG), or has more holes
                than it may (ENODATA).
        """
        fd, name = self.parent(path)
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return os.readlink(name, dir_fd=fd), status
        if not stat.S_ISREG(status.st_mode):  # to open a device or a pipe may have effects
            raise _no_file()
        file = self._open_file(fd, name, path)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise _no_file()
            if not holes and status.st_size <= limit_bytes and _is_hollow(file, status):
                raise OSError(errno.ENODATA, "mostly holes")
            data = _read_all(file, status.st_size, limit_bytes)
        finally:
            os.close(file)
        return data, status

    def write(self, path: bytes, data: bytes, mode: int) -> None:
        """Create the regular file `path`, which must not exist, in an existing directory. Umask applies."""
        fd, name = self.parent(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, mode, dir_fd=fd)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
        finally:
            os.close(file)

    def chmod_own(self, path: bytes, mode: int) -> None:
        """Set the permission bits of a regular file that was just written here."""
        fd, name = self.parent(path)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)

    def clear_set_id(self, path: bytes) -> bool:
        """Remove the set-id bits of a regular file; return False if it has none, or is not a regular file.

        Raises:
            OSError: It belongs to another user, or is gone.
        """
        fd, name = self.parent(path)
        # O_PATH needs no right on the file itself, and pins the file to be changed.
        pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        try:
            mode = os.fstat(pinned).st_mode
            if not stat.S_ISREG(mode) or not mode & SET_ID:
                return False
            Path(f"/proc/self/fd/{pinned}").chmod(stat.S_IMODE(mode) & ~SET_ID)
            return True
        finally:
            os.close(pinned)

    def link(self, path: bytes, target: bytes) -> None:
        """Create the symbolic link `path`, which must not exist, in an existing directory."""
        fd, name = self.parent(path)
        os.symlink(target, name, dir_fd=fd)

    def unlink(self, path: bytes) -> None:
        """Remove a file or link, if it exists."""
        with suppress(FileNotFoundError, NotADirectoryError):
            fd, name = self.parent(path)
            os.unlink(name, dir_fd=fd)

    def remove_empty_parents(self, path: bytes) -> None:
        """Remove the directories above `path` that are empty now, up to the root."""
        folder = path.rpartition(b"/")[0]
        while folder:
            above, _, name = folder.rpartition(b"/")
            try:
                self.close_below(above.count(b"/") + 1 if above else 0)
                os.rmdir(name, dir_fd=self.directory(above))
            except OSError:
                return
            folder = above

    def move(self, source: bytes, target: bytes) -> None:
        """Rename a file or link, replacing the file at `target`; across file systems by a copy beside it."""
        target_fd, target_name = self.parent(target)
        held = os.dup(target_fd)
        try:
            source_fd, source_name = self.parent(source)
            try:
                os.rename(source_name, target_name, src_dir_fd=source_fd, dst_dir_fd=held)
            except OSError as exc:
                if exc.errno != errno.EXDEV:
                    raise
                self._copy_across(source, target)
        finally:
            os.close(held)

    def _copy_across(self, source: bytes, target: bytes) -> None:
        beside = target + b".ringfence-" + secrets.token_hex(4).encode()
        data, status = self.read(source, 1 << 62)
        if stat.S_ISLNK(status.st_mode):
            self.link(beside, data)
        else:
            self.write(beside, data, 0o600)
            self.chmod_own(beside, stat.S_IMODE(status.st_mode))
        fd, name = self.parent(beside)
        os.rename(name, target.rpartition(b"/")[2], src_dir_fd=fd, dst_dir_fd=fd)

    def make_scratch(self, name: bytes) -> None:
        """Create a private directory at the root for incoming files; the caller removes it."""
        os.mkdir(name, 0o700, dir_fd=self._fds[0])

    def remove_scratch(self, name: bytes) -> None:
        """Remove a directory made by `make_scratch` with its contents."""
        self.close_below()
        with suppress(FileNotFoundError, NotADirectoryError):
            remove_tree(self.root / os.fsdecode(name))

    def walk(self, limit: int) -> Iterator[tuple[bytes, list[str]]]:
        """Yield every readable directory with the names in it; links are not followed, `.git` is not entered.

        Args:
            limit: Stop after so many entries.
        """
        pending, seen = [b""], 0
        while pending and seen < limit:
            folder = pending.pop()
            names, inner = [], []
            try:
                with os.scandir(self.directory(folder)) as entries:
                    for entry in entries:
                        names.append(entry.name)
                        if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                            inner.append(os.fsencode(entry.name))
            except OSError:
                continue
            seen += len(names)
            pending += [folder + b"/" + name if folder else name for name in inner]
            yield folder, names


def may_be_hollow(status: os.stat_result) -> bool:
    """Whether a file takes less than half of its length on disk, because it has holes or is compressed there."""
    return status.st_size >= _HOLLOW_FROM_BYTES and status.st_blocks * 512 * 2 <= status.st_size


def _no_file() -> OSError:
    return OSError(errno.EINVAL, "not a regular file")


def _is_hollow(file: int, status: os.stat_result) -> bool:
    """Whether less than half of a long file is on disk, and the rest was never written."""
    if not may_be_hollow(status):
        return False
    # File systems that compress store a file without holes in few blocks.
    hole = os.lseek(file, 0, os.SEEK_HOLE)
    os.lseek(file, 0, os.SEEK_SET)
    return hole < status.st_size


def _read_all(file: int, size: int, limit_bytes: int) -> bytes:
    if size > limit_bytes:
        raise OSError(errno.EFBIG, "too large")
    data = bytearray()
    while chunk := os.read(file, max(65536, size + 1 - len(data))):
        data += chunk
        if len(data) > limit_bytes:
            raise OSError(errno.EFBIG, "too large")
        if len(data) == size:  # one byte more was requested
            break
    return bytes(data)
