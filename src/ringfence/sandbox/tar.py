"""Tar streams: a workspace on its way to a container engine and back, and copies into and out of a sandbox.

What comes out of a sandbox is hostile. Names that lead out of the target are refused; links are made (in a workspace)
or left out (in a copy), and never followed; set-id bits, owners, devices, fifos and sockets never come out; headers,
depth, entries and bytes are bounded. All calls block.

The standard library reads extended headers whole, follows chains of headers and of sparse maps without end, keeps every
header it saw, and believes a negative size: `TarReader` bounds all of these.
"""

import errno
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO, cast

from ringfence.errors import InfrastructureFault, LimitReached, SandboxFileError, UsageError, next_step
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.tree import MAX_DEPTH, Tree

TOP = "workspace"
"""Name of a workspace's own directory in a stream."""
_CHUNK = 1024**2
_BUFFER_BYTES = 16 * 1024
_HEADERS_BYTES = 64 * 1024
"""Read whole by the library, which calls itself for each header that extends another."""
_LISTED = 1000
_NOTED = 20
_NAME_CHARS = 200
_NAME_BYTES = 4096
_LATEST_S = 2**33
_PROTECTED_BYTES = 1024**3
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.ENOENT)
DAMAGED = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""What reading raises where a stream is no archive, or one that would lead out of its target."""


Read = Callable[[int], bytes]
"""Gives the next bytes of a stream, about as many as asked for; none at the end."""
Write = Callable[[bytes], object]
"""Takes the next bytes of a stream."""


@frozen
class Bounds:
    """How much one stream may hold."""

    size_bytes: int
    entries: int


@dataclass
class Transfer:
    """What a stream held."""

    files: int = 0
    entries: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """The first of what was not transferred, and why."""
    put_back: list[str] = field(default_factory=list)
    """The first protected paths that had been changed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of a workspace that came back."""
        notes = []
        if self.put_back:
            changed = ", ".join(self.put_back[:_NOTED])
            notes.append(f"protected files were changed inside and put back: {changed}")
        if self.left_out:
            notes.append(f"not carried back from the engine: {', '.join(self.left_out[:_NOTED])}")
        return tuple(notes)

    def leave_out(self, path: bytes, why: str) -> None:
        """Note what was not transferred."""
        if len(self.left_out) < _LISTED:
            self.left_out.append(f"{os.fsdecode(path[:_NAME_BYTES])!r} ({why})")

    def note_change(self, path: bytes) -> None:
        """Note a protected path that had been changed."""
        if len(self.put_back) < _NOTED:
            self.put_back.append(repr(os.fsdecode(path)))

    def count(self, member: tarfile.TarInfo, bounds: Bounds) -> None:
        """Count an entry.

        Raises:
            LimitReached: It is beyond the bounds.
        """
        self.entries += 1
        self.size_bytes += member.size
        self.files += member.isreg()
        if self.size_bytes > bounds.size_bytes:
            raise LimitReached("disk", allowed=bounds.size_bytes, used=self.size_bytes)
        if self.entries > bounds.entries:
            raise LimitReached("files", allowed=bounds.entries, used=self.entries)


# --- reading headers


class TarReader:
    """A hostile tar stream, read once from its beginning.

    Names that are no UTF-8 are escaped (`surrogateescape`).

    Raises:
        tarfile.TarError: It is no archive.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._count = 0
        self._limit = _HEADERS_BYTES
        self._tar = tarfile.open(  # noqa: SIM115 -- it has no file of its own
            mode="r|",
            fileobj=cast("BinaryIO", self),
            encoding="utf-8",
            errors="surrogateescape",
            bufsize=_BUFFER_BYTES,
        )

    def read(self, count: int) -> bytes:
        """For the library: the next bytes of the stream, unless it holds headers without a file between them."""
        if self._count > self._limit:
            raise tarfile.ReadError("it holds headers without end")
        data = self._read(count)
        self._count += len(data)
        return data

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Each header in turn. Its `size` is not negative, and not bounded either.

        Raises:
            DAMAGED: The stream is damaged, or its headers go on without end.
        """
        while (member := self._next()) is not None:
            if member.size < 0:  # an extended header can say so
                raise tarfile.ReadError(f"a file of {member.size} bytes")
            # Up to where the next header is expected, and then so much of headers.
            self._limit = self._tar.offset + _HEADERS_BYTES
            yield member

    def _next(self) -> tarfile.TarInfo | None:
        # It keeps all headers: a million would be a gigabyte.
        self._tar.members = []  # type: ignore[attr-defined]  # typeshed lacks it
        self._tar.pax_headers = {}
        return self._tar.next()

    def contents(self, member: tarfile.TarInfo) -> io.BufferedReader:
        """The contents of the regular file that `members` gave last."""
        return cast("io.BufferedReader", self._tar.extractfile(member))


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _parse_name(name: str) -> list[bytes]:
    """The components of a member's name.

    Raises:
        tarfile.ReadError: It leads out of the target.
    """
    parts = _encode(name).removeprefix(b"./").rstrip(b"/").split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        raise tarfile.ReadError(f"the name {name[:_NAME_CHARS]!r} leads elsewhere")
    return parts


# --- unpacking


def unpack_workspace(
    read: Read, target: Path, *, original: Path, protected: Iterable[bytes], bounds: Bounds
) -> Transfer:
    """Unpack a workspace into an empty directory: links, modes and times as they were inside.

    Protected paths are put there first: the stream cannot take their place, only be found to differ from them.

    Args:
        read: Gives the stream, from its beginning.
        target: The directory; nobody else writes there.
        original: The workspace as it was packed.
        protected: Paths of it that nobody inside may write.
        bounds: Beyond them it is refused.

    Raises:
        InfrastructureFault: It is no such stream, or cannot be written.
        LimitReached: It is out of bounds.
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
        raise InfrastructureFault(f"what the engine carried back is no workspace: {exc}") from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"what the engine carried back could not be written below {str(target)!r}: {exc.strerror or exc}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
    return transfer


def unpack_copy(read: Read, scratch: Tree, bounds: Bounds, *, path: str) -> Transfer:
    """Unpack a copy into an empty directory: regular files and directories alone, with no more of a mode than `x`.

    Args:
        read: Gives the stream, from its beginning.
        scratch: The directory. Somebody who can write there can spoil the copy, and lead nothing of it elsewhere.
        bounds: Beyond them it is refused.
        path: What is copied, for errors.

    Raises:
        DAMAGED: It is no archive, or one that would lead out of the directory.
        SandboxFileError: It is out of bounds.
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
                name = member.name[:_NAME_CHARS]
                raise tarfile.ReadError(f"something is in the way of {name!r}: {exc.strerror}") from exc
        if self.is_workspace and not has_top:
            raise tarfile.ReadError("it holds no workspace")

    def _path(self, name: str) -> bytes:
        """A member's path below the target; empty for a workspace itself."""
        parts = _parse_name(name)
        if self.is_workspace and parts.pop(0) != TOP.encode():
            raise tarfile.ReadError(f"the name {name[:_NAME_CHARS]!r} leads elsewhere")
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
            self.tree.link(path, _encode(member.linkname))
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
        # Of a copy, the mode says only whether it can be executed; of a workspace, see below.
        descriptor = os.open(name, _CREATE, 0o755 if member.mode & 0o100 else 0o644, dir_fd=folder)
        with self.tar.contents(member) as data, os.fdopen(descriptor, "wb") as file:
            shutil.copyfileobj(data, file, _CHUNK)
            if self.is_workspace:
                file.flush()
                os.fchmod(descriptor, member.mode & 0o777 | stat.S_IRUSR)
                seconds = min(max(int(member.mtime), 0), _LATEST_S)
                os.utime(descriptor, (seconds, seconds))

    def _link(self, path: bytes, there: bytes) -> None:
        """Give a file another name, as it had inside."""
        is_deep = there.count(b"/") >= MAX_DEPTH
        if is_deep or self.protected.covers(there) or self.tree.lstat(there) is None:
            self.transfer.leave_out(path, f"another name of {os.fsdecode(there)[:_NAME_CHARS]!r}")
            return
        folder, name = self.tree.parent(there)
        held = os.dup(folder)
        try:
            folder, here = self.tree.parent(path, create=True)
            os.link(name, here, src_dir_fd=held, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(held)


class _ProtectedPaths:
    """Protected files and directories, put in place before anything of a stream."""

    def __init__(self, tree: Tree, transfer: Transfer) -> None:
        self._tree = tree
        self._transfer = transfer
        self._roots: set[bytes] = set()
        self._above: set[bytes] = set()
        self._missing: dict[bytes, tuple[object, ...]] = {}
        """What the stream has not shown yet, with what it should hold."""

    def put_back(self, before: Tree, path: bytes) -> None:
        """Copy what was at `path` into the new tree."""
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
                continue  # it is gone, or lies in another protected path
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
        """Whether nobody inside may write at `path`."""
        parts = path.split(b"/")
        return any(b"/".join(parts[:depth]) in self._roots for depth in range(1, len(parts) + 1))

    def is_above(self, path: bytes) -> bool:
        """Whether a protected path lies below `path`."""
        return path in self._above

    def compare(self, path: bytes, member: tarfile.TarInfo, data: io.BufferedReader | None) -> None:
        """Note whether the stream holds something else at a protected path."""
        found: tuple[object, ...] = ("other",)
        if member.isdir():
            found = ("directory",)
        elif member.issym():
            found = "link", _encode(member.linkname)
        elif data is not None:
            found = "file", member.mode & 0o100, hashlib.file_digest(data, "sha256").digest()
        if self._missing.pop(path, None) != found:
            self._transfer.note_change(path)

    def note_missing(self) -> None:
        """Note what did not come back."""
        for path in sorted(self._missing):
            self._transfer.note_change(path)


# --- packing


def pack_workspace(
    source: Path, write: Write, *, uid: int, gid: int, bounds: Bounds, only: bytes | None = None
) -> Transfer:
    """Write a workspace as a tar stream in which everything belongs to `uid` and `gid`.

    All that a mount would show goes in: any name, modes, times to the second, links as they are. Sockets, fifos,
    devices, and what the caller cannot read, are left out and noted.

    Args:
        source: The workspace.
        write: Takes the stream.
        uid: The sandbox's user.
        gid: The sandbox's group.
        bounds: Beyond them it is refused.
        only: Of the entries at the top, this alone.

    Raises:
        InfrastructureFault: It cannot be read or written, changes meanwhile, or is out of bounds.
    """
    transfer = Transfer()
    try:
        with Tree(source) as tree, _create_tar(write) as tar:
            packer = _Packer(tree, tar, transfer, bounds, (uid, gid), b"", TOP.encode(), is_workspace=True)
            packer.pack_all(os.fstat(tree.directory(b"")), only)
    except LimitReached as exc:
        raise InfrastructureFault(
            f"{str(source)!r} holds more than {bounds.size_bytes} bytes or {bounds.entries} "
            "entries, too much to be carried to an engine that does not see this machine's files; use --mode "
            "clone, which leaves out what git ignores, or an engine on a Unix socket of this machine"
        ) from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"{str(source)!r} could not be carried to the engine: {exc.strerror or exc}; {next_step(exc)}"
        ) from exc
    return transfer


def pack_copy(source: Path, write: Write, *, name: str, folder: int | None = None) -> Transfer:
    """Write a file or directory as a tar stream. Links, and what is no file or directory, are left out and noted.

    Args:
        source: The file or directory.
        write: Takes the stream.
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
                    tree, tar, transfer, bounds, (0, 0), start, _encode(name), is_workspace=False
                )
                packer.pack_all(status)
    except OSError as exc:
        raise UsageError(f"{str(source)!r} cannot be copied: {exc.strerror or exc}") from exc
    return transfer


def _create_tar(write: Write) -> tarfile.TarFile:
    return tarfile.open(
        mode="w|",
        fileobj=cast("BinaryIO", SimpleNamespace(write=write)),
        format=tarfile.GNU_FORMAT,  # it takes names as they are, in any encoding
        encoding="utf-8",
        errors="surrogateescape",
        bufsize=_CHUNK,
    )


@dataclass
class _Packer:
    tree: Tree
    tar: tarfile.TarFile
    transfer: Transfer
    bounds: Bounds
    owner: tuple[int, int]
    start: bytes
    """Path in the tree of what is packed; empty for all of it."""
    name: bytes
    """Its name in the stream."""
    is_workspace: bool
    """Whether links are kept, and what cannot be read is left out."""

    def pack_all(self, status: os.stat_result, only: bytes | None = None) -> None:
        self._pack(self.start, status)
        pending = [self.start] if stat.S_ISDIR(status.st_mode) else []
        while pending:
            folder = pending.pop()
            pending += reversed(self._pack_children(folder, only))
            only = None

    def _pack_children(self, folder: bytes, only: bytes | None) -> list[bytes]:
        """Pack the entries of a directory; returns the directories among them."""
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
