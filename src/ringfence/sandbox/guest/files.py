"""Implements file operations, each run by a shim, so that a hostile file can at worst hang that process.

In the guest itself, `read /proc/self/mem` or `write /proc/self/fd/1` would reach the guest's own stream.
"""

from __future__ import annotations

import _stat as stat
import errno
import posix as os

TYPE_CHECKING = False
if TYPE_CHECKING:
    Spec = dict[str, str]

CHUNK = 256 * 1024
_temporary: list[str] = []
"""The temporary file of the current write."""
_FROM_START = 0  # os.SEEK_SET, which posix lacks


def read(spec: Spec, _stdin: int, stdout: int) -> None:
    """Send the bytes of a regular file."""
    descriptor = os.open(spec["path"], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "is a directory")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    os.lseek(descriptor, int(spec.get("offset", "0")), _FROM_START)
    while True:
        chunk = os.read(descriptor, CHUNK)
        if not chunk:
            return
        _write_all(stdout, chunk)


def write(spec: Spec, stdin: int, _stdout: int) -> None:
    """Write the bytes of stdin to a file, which is replaced atomically: a reader sees the old file or the new one."""
    from os import makedirs  # all of os: only in the process that writes
    from os import path as paths

    path = paths.realpath(spec["path"])
    parent = paths.dirname(path)
    makedirs(parent, exist_ok=True)
    mode = int(spec["mode"]) if "mode" in spec else None
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, "is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        if not os.access(path, os.W_OK):  # replacing it needs only the directory's permission
            raise OSError(errno.EACCES, "is write-protected")
        # Without set-id bits, as the kernel drops them when a file is written.
        mode = status.st_mode & 0o777 if mode is None else mode
    except FileNotFoundError:
        mode = 0o644 if mode is None else mode
    temporary = paths.join(parent, ".ringfence-%d.tmp" % os.getpid())
    _temporary.append(temporary)
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
    finally:
        remove_temporary()
        if descriptor >= 0:
            os.close(descriptor)


def remove_temporary() -> None:
    """Remove the temporary file of a write that failed or was interrupted."""
    while _temporary:
        try:
            os.unlink(_temporary.pop())
        except OSError:
            pass  # it was renamed, or not made yet


def list_dir(spec: Spec, _stdin: int, stdout: int) -> None:
    """Send kind, size and name of each entry, each field ended by NUL."""
    with os.scandir(spec["path"].encode("utf-8", "surrogateescape")) as entries:
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


def remove(spec: Spec, _stdin: int, _stdout: int) -> None:
    """Remove a file, a link, or a directory with everything in it."""
    path = spec["path"]
    if not _is_directory(path, None):
        os.unlink(path)
        return
    top = _open_directory(path, None)
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
    """Remove an entry. Directories inside it are moved up to `top` and counted, so that no tree is too deep."""
    if not _is_directory(name, top):
        os.unlink(name, dir_fd=top)
        return moved
    child = _open_directory(name, top)
    try:
        for inner in os.listdir(child):
            if not _is_directory(inner, child):
                os.unlink(inner, dir_fd=child)
                continue
            try:
                os.rmdir(inner, dir_fd=child)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
                moved += 1
                target = ".ringfence-%d-%d.removed" % (os.getpid(), moved)
                os.rename(inner, target, src_dir_fd=child, dst_dir_fd=top)
    finally:
        os.close(child)
    os.rmdir(name, dir_fd=top)
    return moved


def _is_directory(path: str, parent: int | None) -> bool:
    return stat.S_ISDIR(os.lstat(path, dir_fd=parent).st_mode)


def _open_directory(path: str, parent: int | None) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


OPERATIONS = {"read": read, "write": write, "list": list_dir, "remove": remove}
