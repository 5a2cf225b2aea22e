"""Packs a directory to stdout as a tar file: `get PARENT NAME`.

Its contents are an agent's, all of whose processes are dead. Links are not followed; files and directories that are
closed to their owner are opened; what no tar file can hold, or has too long a path, is left out. Memory does not grow
with the number of files: a directory is read while it is packed, and once `room` is used up, a file of several names is
packed under each.
"""

import errno
import os
import resource
import stat
import sys
import tarfile
from collections.abc import Iterator

TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
NEEDED = {tarfile.REGTYPE: 0o400, tarfile.DIRTYPE: 0o500}
ENTRY_BYTES = 300  # what a name takes beside its characters


def header(path: str, kind: bytes, found: os.stat_result) -> tarfile.TarInfo:
    """The header of a file."""
    info = tarfile.TarInfo(path)
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(found.st_mode), int(found.st_mtime)
    info.uid, info.gid = found.st_uid, found.st_gid
    if kind == tarfile.SYMTYPE:
        info.linkname = os.readlink(path)  # noqa: PTH115 -- a million of `Path` take too much memory
    elif kind == tarfile.REGTYPE:
        first = first_name(path, found) if found.st_nlink > 1 else path
        if first == path:
            info.size = found.st_size
        else:
            info.type, info.linkname = tarfile.LNKTYPE, first
    return info


def first_name(path: str, found: os.stat_result) -> str:
    """The first name of a file that has several."""
    global room
    known = names.get((found.st_dev, found.st_ino))
    if known is None and room > 0:
        names[found.st_dev, found.st_ino] = path
        room -= len(path) + ENTRY_BYTES
    return known or path


def copy(path: str, size: int) -> None:
    """Write a file's contents."""
    with open(path, "rb") as file:  # noqa: PTH123
        left = size
        while left:
            data = file.read(min(left, 1 << 20))
            if not data:
                sys.exit(f"a file became shorter: {path!r}")
            left -= len(data)
            out.write(data)
    out.write(bytes(-size % tarfile.BLOCKSIZE))


def pack(path: str) -> bool:
    """Write one entry; return whether it is a directory."""
    found = os.lstat(path)
    kind = TYPES.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        return False
    info = header(path, kind, found)
    needed = NEEDED.get(kind, 0)
    if found.st_mode & needed != needed:
        os.chmod(path, info.mode | needed)  # noqa: PTH101
    out.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    if info.size:
        copy(path, info.size)
    return kind == tarfile.DIRTYPE


def inside(path: str) -> "Iterator[str]":
    """Yield the paths of what is in a directory."""
    with os.scandir(path) as found:
        for one in found:
            yield one.path


names: "dict[tuple[int, int], str]" = {}
room = 32 << 20
out = sys.stdout.buffer
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each directory on the way down stays open
os.chdir(sys.argv[1])
waiting = [iter([sys.argv[2]])]
while waiting:
    try:
        name = next(waiting[-1], None)
        if name is None:
            waiting.pop()
        elif pack(name):
            waiting.append(inside(name))
    except OSError as exc:
        if exc.errno != errno.ENAMETOOLONG:
            raise
out.write(bytes(2 * tarfile.BLOCKSIZE))
out.flush()
