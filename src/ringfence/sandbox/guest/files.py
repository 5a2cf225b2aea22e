"""File operations, each run in a process of its own: a hostile file can at worst hang that process.

Run in the guest itself, `read /proc/self/mem` or `write /proc/self/fd/1` would reach the guest's own stream.
"""

from __future__ import annotations

import _stat as stat
import errno
import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    Words = dict[str, str]

CHUNK = 256 * 1024
_FROM_START = 0  # os.SEEK_SET, which posix has not


class RefusedError(OSError):
    """A file operation that is refused for a reason errno has no better word for."""


def read(words: Words, _stdin: int, stdout: int) -> None:
    """Send the bytes of a regular file."""
    descriptor = os.open(words["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(mode):
        raise RefusedError(errno.EINVAL, "is not a regular file")
    os.lseek(descriptor, int(words.get("offset", "0")), _FROM_START)
    while True:
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            return
        _write_all(stdout, chunk)


def write(words: Words, stdin: int, _stdout: int) -> None:
    """Take bytes until the end, then put them in place at once: a reader sees the old file or the new one."""
    from os import makedirs  # all of os: only in the process that writes
    from os import path as paths

    path = paths.realpath(words["path"])
    parent = paths.dirname(path)
    makedirs(parent, exist_ok=True)
    mode = int(words["mode"]) if "mode" in words else None
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError(errno.EINVAL, "is not a regular file")
        if not os.access(path, os.W_OK):  # replacing it needs only the directory's permission
            raise PermissionError(errno.EACCES, "is write-protected")
        # Without set-id bits, as the kernel drops them when a file is written.
        mode = status.st_mode & 0o777 if mode is None else mode
    except FileNotFoundError:
        mode = 0o644 if mode is None else mode
    temporary = paths.join(parent, ".ringfence-%d.tmp" % os.getpid())
    descriptor = -1
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        while True:
            chunk = os.read(stdin, CHUNK)
            if not chunk:
                break
            _write_all(descriptor, chunk)
        os.fchmod(descriptor, mode)
        os.rename(temporary, path)
    except BaseException:
        if paths.lexists(temporary):
            os.unlink(temporary)
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def list_dir(words: Words, _stdin: int, stdout: int) -> None:
    """Send one entry after another: kind letter, size, name, each ended by NUL."""
    with os.scandir(words["path"].encode("utf-8", "surrogateescape")) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            kind = b"other"
            if stat.S_ISREG(status.st_mode):
                kind = b"file"
            elif stat.S_ISDIR(status.st_mode):
                kind = b"dir"
            elif stat.S_ISLNK(status.st_mode):
                kind = b"link"
            _write_all(stdout, b"%s\0%d\0%s\0" % (kind, status.st_size, entry.name))


def remove(words: Words, _stdin: int, _stdout: int) -> None:
    """Remove a file, a link, or a directory with all that is in it."""
    path = words["path"]
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    moved = 0
    while True:
        names = os.listdir(top)
        if not names:
            break
        for name in names:
            moved = _remove_in(top, name, moved)
    os.close(top)
    os.rmdir(path)


def _remove_in(top: int, name: str, moved: int) -> int:
    """Remove an entry; directories two levels down come up, so that no tree is too deep. Returns how many did."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return moved
    child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for inner in os.listdir(child):
            if not stat.S_ISDIR(os.lstat(inner, dir_fd=child).st_mode):
                os.unlink(inner, dir_fd=child)
                continue
            try:
                os.rmdir(inner, dir_fd=child)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                moved += 1
                place = ".ringfence-%d-%d.removed" % (os.getpid(), moved)
                os.rename(inner, place, src_dir_fd=child, dst_dir_fd=top)
    finally:
        os.close(child)
    os.rmdir(name, dir_fd=top)
    return moved


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


OPERATIONS = {"read": read, "write": write, "list": list_dir, "remove": remove}
