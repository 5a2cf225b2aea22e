"""A directory as a tar stream, for an engine that does not see this machine's files.

All that a mount would show goes in: any name, modes, times to the second, links as they are. Sockets, fifos,
devices, and what its owner cannot read, stay behind and are named. Nothing is opened through a link.
"""

import io
import os
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from ringfence.errors import InfrastructureFault, next_step
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.tree import Tree

TOP = "workspace"
"""Name of the directory itself in the stream."""
_CHUNK = 1024**2
_NAMED = 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass
class Packed:
    """What a stream holds."""

    size_bytes: int = 0
    entries: int = 0
    left_out: list[str] = field(default_factory=list)
    """The first of what stayed behind, and why."""

    def leave_out(self, path: bytes, why: str) -> None:
        """Note what stayed behind."""
        if len(self.left_out) < _NAMED:
            self.left_out.append(f"{os.fsdecode(path)!r} ({why})")


@frozen
class Bounds:
    """What may be in one stream."""

    size_bytes: int
    entries: int


def pack(
    source: Path, file: BinaryIO, *, uid: int, gid: int, bounds: Bounds, only: bytes | None = None
) -> Packed:
    """Write the directory `source` as a tar stream in which everything belongs to `uid` and `gid`. Blocks.

    Args:
        source: The directory.
        file: Where to.
        uid: Whose it will be.
        gid: Likewise.
        bounds: Beyond them it is refused.
        only: Of what is at the top, this alone.

    Raises:
        InfrastructureFault: It cannot be read or written, changes meanwhile, or is out of bounds.
    """
    packed = Packed()
    try:
        with (
            Tree(source) as tree,
            # GNU's format takes names as they are; what they are in is not for us to know.
            tarfile.open(
                mode="w|",
                fileobj=file,
                format=tarfile.GNU_FORMAT,
                encoding="utf-8",
                errors="surrogateescape",
                bufsize=_CHUNK,
            ) as tar,
        ):
            _Packer(tree, tar, packed, (uid, gid), bounds).add_all(only)
    except OSError as exc:
        raise InfrastructureFault(
            f"{str(source)!r} could not be carried to the engine: {exc.strerror or exc}; {next_step(exc)}"
        ) from exc
    return packed


class _Packer:
    def __init__(
        self, tree: Tree, tar: tarfile.TarFile, packed: Packed, owner: tuple[int, int], bounds: Bounds
    ) -> None:
        self._tree = tree
        self._tar = tar
        self._packed = packed
        self._owner = owner
        self._bounds = bounds

    def add_all(self, only: bytes | None) -> None:
        self._add(b"", os.fstat(self._tree.directory(b"")))
        pending = self._add_children(b"", only)
        while pending:
            folder = pending.pop()
            pending += reversed(self._add_children(folder))

    def _add_children(self, folder: bytes, only: bytes | None = None) -> list[bytes]:
        """Add what is in a directory; returns the directories in it."""
        inner = []
        try:
            names = sorted(name for name in self._tree.children(folder) if only in (None, name))
        except OSError as exc:
            if not folder:
                raise
            self._packed.leave_out(folder + b"/", str(exc.strerror).lower())
            return []
        for name in names:
            path = folder + b"/" + name if folder else name
            status = self._tree.lstat(path)
            if status is not None:
                self._add(path, status)
                if stat.S_ISDIR(status.st_mode):
                    inner.append(path)
        return inner

    def _add(self, path: bytes, status: os.stat_result) -> None:
        member = tarfile.TarInfo(f"{TOP}/{path.decode('utf-8', 'surrogateescape')}" if path else TOP)
        member.mode, member.mtime = status.st_mode & 0o777, int(status.st_mtime)
        member.uid, member.gid = self._owner
        if stat.S_ISREG(status.st_mode):
            self._add_file(path, member)
        elif stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
            self._put(member)
        elif stat.S_ISLNK(status.st_mode):
            folder, name = self._tree.parent(path)
            member.type = tarfile.SYMTYPE
            member.linkname = os.readlink(name, dir_fd=folder).decode("utf-8", "surrogateescape")
            self._put(member)
        else:
            self._packed.leave_out(path, "a socket, fifo or device")

    def _add_file(self, path: bytes, member: tarfile.TarInfo) -> None:
        folder, name = self._tree.parent(path)
        try:
            descriptor = os.open(name, _OPEN, dir_fd=folder)
        except OSError as exc:
            self._packed.leave_out(path, str(exc.strerror).lower())
            return
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self._packed.leave_out(path, "it changed meanwhile")
                return
            member.size = status.st_size
            self._put(member, opened)

    def _put(self, member: tarfile.TarInfo, opened: BinaryIO | None = None) -> None:
        packed = self._packed
        packed.size_bytes += member.size
        packed.entries += 1
        if packed.size_bytes > self._bounds.size_bytes or packed.entries > self._bounds.entries:
            raise InfrastructureFault(
                f"{str(self._tree.root)!r} holds more than {self._bounds.size_bytes} bytes or {self._bounds.entries} "
                "entries, too much to be carried to an engine that does not see this machine's files; use --mode "
                "clone, which leaves out what git ignores, or an engine on a Unix socket of this machine"
            )
        self._tar.addfile(member, cast("io.BufferedReader", opened) if opened else None)
