"""Packs a directory to stdout as a tar file: `get PARENT NAME`.

Its contents are an agent's, all of whose processes are dead. Links are not followed; files and directories that are
closed to their owner are opened; what no tar file can hold, or has too long a path, is left out. Memory does not grow
with the number of files.
"""

import errno
import os
import stat
import sys
import tarfile
from pathlib import Path

TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
NEEDED = {tarfile.REGTYPE: 0o400, tarfile.DIRTYPE: 0o500}


def header(path: Path, kind: bytes, found: os.stat_result) -> tarfile.TarInfo:
    """The header of a file."""
    info = tarfile.TarInfo(str(path))
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(found.st_mode), int(found.st_mtime)
    info.uid, info.gid = found.st_uid, found.st_gid
    first = names.setdefault((found.st_dev, found.st_ino), path) if found.st_nlink > 1 else path
    if kind == tarfile.SYMTYPE:
        info.linkname = str(path.readlink())
    elif kind == tarfile.REGTYPE and first != path:
        info.type, info.linkname = tarfile.LNKTYPE, str(first)
    elif kind == tarfile.REGTYPE:
        info.size = found.st_size
    return info


def copy(path: Path, size: int) -> None:
    """Write a file's contents."""
    with path.open("rb") as file:
        left = size
        while left:
            data = file.read(min(left, 1 << 20))
            if not data:
                sys.exit(f"a file became shorter: {str(path)!r}")
            left -= len(data)
            out.write(data)
    out.write(bytes(-size % tarfile.BLOCKSIZE))


def pack(path: Path) -> "list[Path]":
    """Write one entry; return what is in it, if it is a directory."""
    found = path.lstat()
    kind = TYPES.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        return []
    info = header(path, kind, found)
    needed = NEEDED.get(kind, 0)
    if found.st_mode & needed != needed:
        path.chmod(info.mode | needed)
    inner = sorted(path.iterdir(), reverse=True) if kind == tarfile.DIRTYPE else []
    out.write(info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
    if info.size:
        copy(path, info.size)
    return inner


names: "dict[tuple[int, int], Path]" = {}
out = sys.stdout.buffer
os.chdir(sys.argv[1])
waiting = [Path(sys.argv[2])]
while waiting:
    try:
        waiting += pack(waiting.pop())
    except OSError as exc:
        if exc.errno != errno.ENAMETOOLONG:
            raise
out.write(bytes(2 * tarfile.BLOCKSIZE))
out.flush()
