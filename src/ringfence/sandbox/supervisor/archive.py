"""The host's end of a copy: tar streams that are hostile coming out, and hold no link either way.

Names that lead elsewhere are refused; links and devices are left out and named; headers, depth, entries and bytes are
bounded. Either way, nothing is opened through a link: where the target can be seen inside, as a workspace can, an
agent may make one at any moment.
"""

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from ringfence.errors import InfrastructureFault, SandboxFileError, UsageError, next_step
from ringfence.frozen import frozen
from ringfence.sandbox.tar_header import BoundedTar, bounded_tar
from ringfence.sandbox.workspace.tree import Tree

_DEPTH = 200
_NAMED = 1000
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENOENT)
_CHUNK = 1024**2
_NAME_CHARS = 200
_LONGEST_NAME = 4096


@dataclass
class Copied:
    """What a copy came to."""

    files: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """Links, devices and the like, by name; at most a thousand."""

    def leave_out(self, name: str) -> None:
        """Note what was not copied."""
        if len(self.left_out) < _NAMED:
            self.left_out.append(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...")


@frozen
class Bounds:
    """What may come out in one copy."""

    size_bytes: int
    entries: int


def unpack(more: Callable[[], bytes], scratch: Tree, bounds: Bounds, *, source: str) -> Copied:
    """Unpack a tar stream into an empty directory. Blocks.

    Args:
        more: Gives the next bytes; none at the end.
        scratch: Where to. Who can write there can spoil the copy, and lead nothing of it elsewhere.
        bounds: Beyond them nothing is unpacked.
        source: What is copied, for errors.

    Raises:
        tarfile.TarError, EOFError, ValueError: It is no archive, or one with names that lead elsewhere.
        SandboxFileError: It is out of bounds.
        InfrastructureFault: It cannot be written.
    """
    copied = Copied()
    with bounded_tar(_Reader(more)) as tar:
        for entries, member in enumerate(tar.members(), start=1):
            copied.size_bytes += member.size
            _check(copied.size_bytes, entries, bounds, source)
            if not (member.isdir() or (member.isreg() and not member.issparse())):
                copied.leave_out(member.name)
                continue
            _extract(tar, member, scratch)
            copied.files += member.isreg()
    return copied


def _check(size_bytes: int, entries: int, bounds: Bounds, source: str) -> None:
    if size_bytes > bounds.size_bytes or entries > bounds.entries:
        raise SandboxFileError(
            f"{source!r} holds more than {bounds.size_bytes} bytes or {bounds.entries} entries, so nothing was "
            "copied; copy less at once, or raise --limit",
            path=source,
            errno_name="EFBIG",
        )


def _extract(tar: BoundedTar, member: tarfile.TarInfo, scratch: Tree) -> None:
    path = _path_of(member)
    try:
        if member.isdir():
            scratch.directory(path, create=True)
            return
        folder, name = scratch.parent(path, create=True)
        # Neither owner nor times nor set-id bits: only whether it can be executed.
        descriptor = os.open(name, _NEW, 0o755 if member.mode & 0o100 else 0o644, dir_fd=folder)
        with os.fdopen(descriptor, "wb") as writing, tar.contents(member) as data:
            shutil.copyfileobj(data, writing, _CHUNK)
    except OSError as exc:
        if exc.errno in _IN_THE_WAY:
            raise tarfile.ReadError(
                f"something is in the way of {member.name[:_NAME_CHARS]!r}: {exc.strerror}"
            ) from exc
        raise InfrastructureFault(
            f"could not write {member.name[:_NAME_CHARS]!r} below {str(scratch.root)!r}: {exc.strerror or exc}; "
            f"{next_step(exc)}"
        ) from exc


def _path_of(member: tarfile.TarInfo) -> bytes:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or len(path.parts) > _DEPTH:
        raise tarfile.ReadError(f"the name {member.name[:_NAME_CHARS]!r} leads elsewhere or too deep")
    if not path.parts and not member.isdir():
        raise tarfile.ReadError("it holds a file without a name")
    return b"/".join(os.fsencode(part) for part in path.parts)


class _Reader:
    def __init__(self, more: Callable[[], bytes]) -> None:
        self._more = more
        self._rest = bytearray()

    def read(self, count: int) -> bytes:
        while len(self._rest) < count:
            chunk = self._more()
            if not chunk:
                break
            self._rest += chunk
        data = bytes(self._rest[:count])
        del self._rest[:count]
        return data


class _Writer:
    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def write(self, data: bytes) -> int:
        self._put(bytes(data))
        return len(data)


def pack(source: Path, name: str, put: Callable[[bytes], None], *, folder: int | None = None) -> Copied:
    """Write a file or directory as a tar stream, called `name` in it. Blocks.

    Args:
        source: What is written.
        name: Its name in the stream.
        put: Takes the next bytes.
        folder: A descriptor of the directory it is in, by which it is reached instead of by its path.

    Raises:
        UsageError: It cannot be read, or is neither.
    """
    copied = Copied()
    try:
        descriptor = os.open(source if folder is None else source.name, _OPEN, dir_fd=folder)
        with tarfile.open(
            mode="w|", fileobj=cast("BinaryIO", _Writer(put)), format=tarfile.PAX_FORMAT
        ) as tar:
            _add(tar, descriptor, name, copied)
    except OSError as exc:
        raise UsageError(f"{str(source)!r} cannot be copied: {exc.strerror or exc}") from exc
    if copied.left_out == [name]:
        raise UsageError(f"{str(source)!r} cannot be copied: it is neither a file nor a directory")
    return copied


def _add(tar: tarfile.TarFile, descriptor: int, name: str, copied: Copied) -> None:
    """Add what a descriptor stands for, and close it."""
    try:
        status = os.fstat(descriptor)
        member = tarfile.TarInfo(name)
        member.mode, member.mtime = status.st_mode & 0o777, int(status.st_mtime)
        if stat.S_ISREG(status.st_mode):
            member.size = status.st_size
            with os.fdopen(descriptor, "rb", closefd=False) as opened:
                tar.addfile(member, opened)
            copied.files += 1
            copied.size_bytes += member.size
        elif stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
            _add_entries(tar, descriptor, name, copied)
        else:
            copied.leave_out(name)
    finally:
        os.close(descriptor)


def _add_entries(tar: tarfile.TarFile, folder: int, name: str, copied: Copied) -> None:
    if name.count("/") > _DEPTH:
        raise UsageError(f"{name[:200]!r}... lies deeper than {_DEPTH} directories and cannot be copied")
    for entry in sorted(os.listdir(folder)):
        inner = f"{name}/{entry}"
        kind = stat.S_IFMT(os.lstat(entry, dir_fd=folder).st_mode)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            copied.leave_out(inner)
            continue
        _add(tar, os.open(entry, _OPEN, dir_fd=folder), inner, copied)
