"""Packs a workspace for an engine, or a copy for a sandbox."""

import io
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

from ringfence.errors import InfrastructureFault, LimitReached, UsageError, next_step
from ringfence.sandbox.tar.stream import CHUNK_BYTES, TOP, Bounds, Transfer, Write, encode_name
from ringfence.sandbox.workspace.tree import Tree

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def pack_workspace(
    source: Path, write: Write, *, uid: int, gid: int, bounds: Bounds, only: bytes | None = None
) -> Transfer:
    """Write a workspace as a tar stream in which everything belongs to `uid` and `gid`.

    Everything that a mount would show is included: any name, modes, times to the second, links as they are. Sockets,
    fifos, devices, and files that the caller cannot read, are left out and noted.

    Args:
        source: The workspace.
        write: Called with each piece of the stream.
        uid: The sandbox's user.
        gid: The sandbox's group.
        bounds: Limits beyond which it is refused.
        only: The only entry at the top to include.

    Raises:
        InfrastructureFault: It cannot be read or written, changes meanwhile, or exceeds the bounds.
    """
    transfer = Transfer()
    try:
        with Tree(source) as tree, _create_tar(write) as tar:
            packer = _Packer(tree, tar, transfer, bounds, (uid, gid), b"", TOP.encode(), is_workspace=True)
            packer.pack_all(os.fstat(tree.directory(b"")), only)
    except LimitReached as exc:
        raise InfrastructureFault(
            f"{str(source)!r} holds more than {bounds.size_bytes} bytes or {bounds.entries} "
            "entries, too much to upload to an engine that does not see this machine's files; use --mode "
            "clone, which leaves out what git ignores, or an engine on a Unix socket of this machine"
        ) from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"{str(source)!r} could not be uploaded to the engine: {exc.strerror or exc}; {next_step(exc)}"
        ) from exc
    return transfer


def pack_copy(source: Path, write: Write, *, name: str, folder: int | None = None) -> Transfer:
    """Write a file or directory as a tar stream. Links and special files are left out and noted.

    Args:
        source: The file or directory.
        write: Called with each piece of the stream.
        name: Its name in the stream.
        folder: A descriptor of the directory it is in, by which it is reached instead of by its path.

    Raises:
        UsageError: It cannot be read, or is neither.
    """
    transfer, bounds = Transfer(), Bounds(1 << 62, 1 << 62)
    try:
        with Tree(source.parent, at=folder) as tree:
            status = os.stat(source.name, dir_fd=tree.directory(b""), follow_symlinks=False)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise UsageError(f"{str(source)!r} cannot be copied: it is neither a file nor a directory")
            with _create_tar(write) as tar:
                start = os.fsencode(source.name)
                packer = _Packer(
                    tree, tar, transfer, bounds, (0, 0), start, encode_name(name), is_workspace=False
                )
                packer.pack_all(status)
    except OSError as exc:
        raise UsageError(f"{str(source)!r} cannot be copied: {exc.strerror or exc}") from exc
    return transfer


def _create_tar(write: Write) -> tarfile.TarFile:
    return tarfile.open(
        mode="w|",
        fileobj=cast("BinaryIO", SimpleNamespace(write=write)),
        format=tarfile.GNU_FORMAT,  # accepts names in any encoding
        encoding="utf-8",
        errors="surrogateescape",
        bufsize=CHUNK_BYTES,
    )


@dataclass
class _Packer:
    tree: Tree
    tar: tarfile.TarFile
    transfer: Transfer
    bounds: Bounds
    owner: tuple[int, int]
    start: bytes
    """Path in the tree of the entry to pack; empty for the whole tree."""
    name: bytes
    """Its name in the stream."""
    is_workspace: bool
    """Whether links are kept and unreadable files are left out."""

    def pack_all(self, status: os.stat_result, only: bytes | None = None) -> None:
        self._pack(self.start, status)
        pending = [self.start] if stat.S_ISDIR(status.st_mode) else []
        while pending:
            folder = pending.pop()
            pending += reversed(self._pack_children(folder, only))
            only = None

    def _pack_children(self, folder: bytes, only: bytes | None) -> list[bytes]:
        """Pack the entries of a directory; return the directories among them."""
        inner = []
        try:
            names = sorted(name for name in self.tree.children(folder) if only in (None, name))
        except OSError as exc:
            if not folder:
                raise
            self._skip(folder + b"/", exc)
            return []
        for name in names:
            path = folder + b"/" + name if folder else name
            status = self.tree.lstat(path)
            if status is not None:
                self._pack(path, status)
                if stat.S_ISDIR(status.st_mode):
                    inner.append(path)
        return inner

    def _skip(self, path: bytes, error: OSError) -> None:
        if not self.is_workspace:
            raise UsageError(f"{os.fsdecode(path)!r} cannot be copied: {error.strerror}") from error
        self.transfer.leave_out(path, str(error.strerror).lower())

    def _pack(self, path: bytes, status: os.stat_result) -> None:
        inner = path[len(self.start) :].lstrip(b"/")
        name = self.name + b"/" + inner if inner else self.name
        member = tarfile.TarInfo(name.decode("utf-8", "surrogateescape"))
        member.mode, member.mtime = status.st_mode & 0o777, int(status.st_mtime)
        member.uid, member.gid = self.owner
        if stat.S_ISREG(status.st_mode):
            self._pack_file(path, member)
        elif stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
            self._add(member)
        elif not stat.S_ISLNK(status.st_mode):
            self.transfer.leave_out(path, "a socket, fifo or device")
        elif not self.is_workspace:
            self.transfer.leave_out(path, "a link")
        else:
            folder, last = self.tree.parent(path)
            member.type = tarfile.SYMTYPE
            member.linkname = os.readlink(last, dir_fd=folder).decode("utf-8", "surrogateescape")
            self._add(member)

    def _pack_file(self, path: bytes, member: tarfile.TarInfo) -> None:
        folder, last = self.tree.parent(path)
        try:
            descriptor = os.open(last, _READ, dir_fd=folder)
        except OSError as exc:
            self._skip(path, exc)
            return
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                self.transfer.leave_out(path, "it changed meanwhile")
                return
            member.size = status.st_size
            self._add(member, file)

    def _add(self, member: tarfile.TarInfo, file: BinaryIO | None = None) -> None:
        self.transfer.count(member, self.bounds)
        self.tar.addfile(member, cast("io.BufferedReader", file) if file else None)
