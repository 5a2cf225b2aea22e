"""Unpacks a downloaded workspace, or a copy out of a sandbox."""

import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InfrastructureFault, LimitReached, SandboxFileError, next_step
from ringfence.sandbox.tar.stream import (
    CHUNK_BYTES,
    DAMAGED,
    SHOWN_NAME_CHARS,
    TOP,
    Bounds,
    Read,
    TarReader,
    Transfer,
    encode_name,
    parse_name,
)
from ringfence.sandbox.workspace.tree import MAX_DEPTH, Tree

_LATEST_S = 2**33
_PROTECTED_BYTES = 1024**3
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENOENT)


def unpack_workspace(
    read: Read, target: Path, *, original: Path, protected: Iterable[bytes], bounds: Bounds
) -> Transfer:
    """Unpack a workspace into an empty directory: links, modes and times as they were inside.

    Protected paths are written first: entries of the stream cannot replace them; differences are only noted.

    Args:
        read: Reads the stream, from its beginning.
        target: The directory; no other process writes there.
        original: The workspace as it was packed.
        protected: Paths of it that no process inside may write.
        bounds: Limits beyond which it is refused.

    Raises:
        InfrastructureFault: It is not such a stream, or cannot be written.
        LimitReached: It exceeds the bounds.
    """
    transfer = Transfer()
    try:
        with Tree(target) as tree, Tree(original) as before:
            paths = _ProtectedPaths(tree, transfer)
            for path in protected:
                paths.put_back(before, path)
            _Unpacker(tree, TarReader(read), transfer, bounds, paths, is_workspace=True).unpack_all()
            paths.note_missing()
    except DAMAGED as exc:
        raise InfrastructureFault(f"what was downloaded from the engine is no workspace: {exc}") from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"what was downloaded from the engine could not be written below {str(target)!r}: {exc.strerror or exc}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
    return transfer


def unpack_copy(read: Read, scratch: Tree, bounds: Bounds, *, path: str) -> Transfer:
    """Unpack a copy into an empty directory: only regular files and directories, with no part of the mode but `x`.

    Args:
        read: Reads the stream, from its beginning.
        scratch: The directory. Another process that writes there can damage the copy, but not redirect it.
        bounds: Limits beyond which it is refused.
        path: The copied path, for errors.

    Raises:
        DAMAGED: It is not an archive, or would lead out of the directory.
        SandboxFileError: It exceeds the bounds.
        InfrastructureFault: It cannot be written.
    """
    transfer = Transfer()
    try:
        paths = _ProtectedPaths(scratch, transfer)
        _Unpacker(scratch, TarReader(read), transfer, bounds, paths, is_workspace=False).unpack_all()
    except LimitReached as exc:
        raise SandboxFileError(
            f"{path!r} holds more than {bounds.size_bytes} bytes or {bounds.entries} entries, so nothing was "
            "copied; copy less at once, or raise --limit",
            path=path,
            errno_name="EFBIG",
        ) from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"could not write {path!r} below {str(scratch.root)!r}: {exc.strerror or exc}; {next_step(exc)}"
        ) from exc
    return transfer


@dataclass
class _Unpacker:
    tree: Tree
    tar: TarReader
    transfer: Transfer
    bounds: Bounds
    protected: "_ProtectedPaths"
    is_workspace: bool
    """Whether links, modes and times are kept."""

    def unpack_all(self) -> None:
        has_top = False
        for member in self.tar.members():
            self.transfer.count(member, self.bounds)
            path = self._path(member.name)
            if not path:
                has_top = member.isdir()
                continue
            try:
                self._unpack(path, member)
            except OSError as exc:
                if exc.errno not in _IN_THE_WAY:
                    raise
                name = member.name[:SHOWN_NAME_CHARS]
                raise tarfile.ReadError(f"something is in the way of {name!r}: {exc.strerror}") from exc
        if self.is_workspace and not has_top:
            raise tarfile.ReadError("it holds no workspace")

    def _path(self, name: str) -> bytes:
        """A member's path below the target; empty for the workspace itself."""
        parts = parse_name(name)
        if self.is_workspace and parts.pop(0) != TOP.encode():
            raise tarfile.ReadError(f"the name {name[:SHOWN_NAME_CHARS]!r} leads elsewhere")
        return b"/".join(parts)

    def _unpack(self, path: bytes, member: tarfile.TarInfo) -> None:
        is_file = member.isreg() and not member.issparse()
        if path.count(b"/") >= MAX_DEPTH:
            self.transfer.leave_out(path, f"deeper than {MAX_DEPTH} directories")
        elif self.protected.covers(path):
            self.protected.compare(path, member, self.tar.contents(member) if is_file else None)
        elif self.protected.is_above(path):
            if not member.isdir():
                self.transfer.note_change(path)
        elif member.isdir():
            self._make_directory(path, member)
        elif is_file:
            self._write(path, member)
        elif member.issym() and self.is_workspace:
            self.tree.directory(path.rpartition(b"/")[0], create=True)
            self.tree.link(path, encode_name(member.linkname))
        elif member.islnk() and self.is_workspace:
            self._link(path, self._path(member.linkname))
        else:
            kind = "a sparse file" if member.isreg() else "a socket, fifo or device"
            self.transfer.leave_out(path, "a link" if member.issym() or member.islnk() else kind)

    def _make_directory(self, path: bytes, member: tarfile.TarInfo) -> None:
        descriptor = self.tree.directory(path, create=True)
        if self.is_workspace:
            os.fchmod(descriptor, member.mode & 0o777 | stat.S_IRWXU)

    def _write(self, path: bytes, member: tarfile.TarInfo) -> None:
        folder, name = self.tree.parent(path, create=True)
        # In a copy, the mode only says whether a file is executable; for a workspace, see below.
        descriptor = os.open(name, _CREATE, 0o755 if member.mode & 0o100 else 0o644, dir_fd=folder)
        with self.tar.contents(member) as data, os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(data, file, CHUNK_BYTES)
            if self.is_workspace:
                file.flush()
                os.fchmod(descriptor, member.mode & 0o777 | stat.S_IRUSR)
                seconds = min(max(int(member.mtime), 0), _LATEST_S)
                os.utime(descriptor, (seconds, seconds))

    def _link(self, path: bytes, there: bytes) -> None:
        """Make a hard link to a file, as there was inside."""
        is_deep = there.count(b"/") >= MAX_DEPTH
        if is_deep or self.protected.covers(there) or self.tree.lstat(there) is None:
            self.transfer.leave_out(path, f"another name of {os.fsdecode(there)[:SHOWN_NAME_CHARS]!r}")
            return
        folder, name = self.tree.parent(there)
        held = os.dup(folder)
        try:
            folder, here = self.tree.parent(path, create=True)
            os.link(name, here, src_dir_fd=held, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(held)


class _ProtectedPaths:
    """Writes protected files and directories before the first entry of a stream."""

    def __init__(self, tree: Tree, transfer: Transfer) -> None:
        self._tree = tree
        self._transfer = transfer
        self._roots: set[bytes] = set()
        self._above: set[bytes] = set()
        self._missing: dict[bytes, tuple[object, ...]] = {}
        """Protected paths that were not in the stream so far, with their expected contents."""

    def put_back(self, before: Tree, path: bytes) -> None:
        """Copy the file or directory at `path` into the new tree."""
        if before.lstat(path) is None:
            return
        parts = path.split(b"/")
        self._above |= {b"/".join(parts[:depth]) for depth in range(1, len(parts))}
        self._roots.add(path)
        self._tree.directory(path.rpartition(b"/")[0], create=True)
        pending = [path]
        while pending:
            here = pending.pop()
            status = before.lstat(here)
            if status is None or here in self._missing:
                continue  # it is gone, or is in another protected path
            if stat.S_ISDIR(status.st_mode):
                self._tree.directory(here, create=True)
                self._missing[here] = ("directory",)
                pending += [here + b"/" + name for name in before.children(here)]
            else:
                self._missing[here] = self._copy(before, here)

    def _copy(self, before: Tree, path: bytes) -> tuple[object, ...]:
        data, status = before.read(path, _PROTECTED_BYTES)
        if stat.S_ISLNK(status.st_mode):
            self._tree.link(path, data)
            return "link", data
        self._tree.write(path, data, 0o600)
        self._tree.chmod_own(path, stat.S_IMODE(status.st_mode) & 0o777)
        return "file", status.st_mode & 0o100, hashlib.sha256(data).digest()

    def covers(self, path: bytes) -> bool:
        """Whether no process inside may write at `path`."""
        parts = path.split(b"/")
        return any(b"/".join(parts[:depth]) in self._roots for depth in range(1, len(parts) + 1))

    def is_above(self, path: bytes) -> bool:
        """Whether there is a protected path below `path`."""
        return path in self._above

    def compare(self, path: bytes, member: tarfile.TarInfo, data: io.BufferedReader | None) -> None:
        """Note if the stream holds something else at a protected path."""
        found: tuple[object, ...] = ("other",)
        if member.isdir():
            found = ("directory",)
        elif member.issym():
            found = "link", encode_name(member.linkname)
        elif data is not None:
            found = "file", member.mode & 0o100, hashlib.file_digest(data, "sha256").digest()
        if self._missing.pop(path, None) != found:
            self._transfer.note_change(path)

    def note_missing(self) -> None:
        """Note protected paths that the stream did not hold."""
        for path in sorted(self._missing):
            self._transfer.note_change(path)
