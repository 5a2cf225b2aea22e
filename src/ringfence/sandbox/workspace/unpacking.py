"""What an engine carried back, unpacked into a directory of its own. Everything in the stream is hostile.

Links are made and never followed; owners and set-id bits are dropped, sockets, fifos and devices left out and named;
depth, entries and bytes are bounded. What the agent may not write is put there first: the stream cannot take its
place, only be found to differ from it.
"""

import os
import shutil
import stat
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from ringfence.errors import InfrastructureFault, LimitReached, next_step
from ringfence.sandbox.tar_header import BoundedTar, bounded_tar
from ringfence.sandbox.workspace.packing import TOP, Bounds
from ringfence.sandbox.workspace.tree import MAX_DEPTH, Tree

_CHUNK = 1024**2
_NAMED = 20
_LATEST_S = 2**33
_PROTECTED_BYTES = 1024**3
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Unpacked:
    """What came back."""

    entries: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """The first of what was not taken, and why."""
    put_back: list[str] = field(default_factory=list)
    """The first of what the agent may not write and had changed."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should be told."""
        notes = []
        if self.put_back:
            notes.append(f"protected files were changed inside and put back: {', '.join(self.put_back)}")
        if self.left_out:
            notes.append(f"not carried back from the engine: {', '.join(self.left_out)}")
        return tuple(notes)

    def leave_out(self, path: bytes, why: str) -> None:
        """Note what was not taken."""
        if len(self.left_out) < _NAMED:
            self.left_out.append(f"{os.fsdecode(path)!r} ({why})")

    def differs(self, path: bytes) -> None:
        """Note a protected path that was changed."""
        if len(self.put_back) < _NAMED:
            self.put_back.append(repr(os.fsdecode(path)))


def unpack(
    file: BinaryIO, target: Path, *, original: Path, protected: Iterable[bytes], bounds: Bounds
) -> Unpacked:
    """Unpack a tar stream of a workspace into the empty directory `target`. Blocks.

    Args:
        file: The stream, from its beginning.
        target: Nobody else writes there.
        original: What was carried in.
        protected: Paths of it that the agent may not write.
        bounds: Beyond them it is refused.

    Raises:
        InfrastructureFault: It is no such stream, or cannot be written.
        LimitReached: It is out of bounds.
    """
    unpacked = Unpacked()
    try:
        with (
            Tree(target) as tree,
            bounded_tar(file, encoding="utf-8", bufsize=_CHUNK) as tar,
        ):
            guard = _Guard(tree, unpacked)
            with Tree(original) as before:
                for path in protected:
                    guard.keep(before, path)
            _Unpacker(tree, tar, unpacked, guard, bounds).take_all()
            guard.close()
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as exc:
        raise InfrastructureFault(f"what the engine carried back is no workspace: {exc}") from exc
    except OSError as exc:
        raise InfrastructureFault(
            f"what the engine carried back could not be written below {str(target)!r}: {exc.strerror or exc}; "
            f"{next_step(exc, is_state=True)}"
        ) from exc
    return unpacked


class _Guard:
    """Protected files, put in place before anything else."""

    def __init__(self, tree: Tree, unpacked: Unpacked) -> None:
        self._tree = tree
        self._unpacked = unpacked
        self._roots: set[bytes] = set()
        self._above: set[bytes] = set()
        self._unseen: set[bytes] = set()

    def keep(self, before: Tree, path: bytes) -> None:
        """Copy what is at `path` into the new tree."""
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
            if status is None:
                continue
            self._unseen.add(here)
            if stat.S_ISDIR(status.st_mode):
                self._tree.directory(here, create=True)
                pending += [here + b"/" + name for name in before.children(here)]
            else:
                self._copy(before, here)

    def _copy(self, before: Tree, path: bytes) -> None:
        if self._tree.lstat(path) is not None:
            return  # it lies in another protected path
        data, status = before.read(path, _PROTECTED_BYTES)
        if stat.S_ISLNK(status.st_mode):
            self._tree.link(path, data)
            return
        self._tree.write(path, data, 0o600)
        self._tree.chmod_own(path, stat.S_IMODE(status.st_mode) & 0o777)

    def is_kept(self, path: bytes) -> bool:
        """Whether the agent may not write at `path`."""
        parts = path.split(b"/")
        return any(b"/".join(parts[:depth]) in self._roots for depth in range(1, len(parts) + 1))

    def is_above(self, path: bytes) -> bool:
        """Whether something lies below `path` that the agent may not write."""
        return path in self._above

    def compare(self, path: bytes, member: tarfile.TarInfo, data: IO[bytes] | None) -> None:
        """See whether what came back at a protected path is what is there."""
        is_new = path not in self._unseen
        self._unseen.discard(path)
        if is_new or not self._is_same(path, member, data):
            self._unpacked.differs(path)

    def _is_same(self, path: bytes, member: tarfile.TarInfo, data: IO[bytes] | None) -> bool:
        status = self._tree.lstat(path)
        if status is None:
            return False
        if member.isdir():
            return stat.S_ISDIR(status.st_mode)
        if member.issym():
            kept = self._tree.read(path, _PROTECTED_BYTES)[0] if stat.S_ISLNK(status.st_mode) else None
            return kept == _bytes(member.linkname)
        if data is None or not stat.S_ISREG(status.st_mode) or member.size != status.st_size:
            return False
        has_same_mode = (member.mode ^ status.st_mode) & 0o100 == 0
        return has_same_mode and data.read() == self._tree.read(path, _PROTECTED_BYTES)[0]

    def close(self) -> None:
        """Note what did not come back."""
        for path in sorted(self._unseen):
            self._unpacked.differs(path)


class _Unpacker:
    def __init__(
        self, tree: Tree, tar: BoundedTar, unpacked: Unpacked, guard: _Guard, bounds: Bounds
    ) -> None:
        self._tree = tree
        self._tar = tar
        self._unpacked = unpacked
        self._guard = guard
        self._bounds = bounds

    def take_all(self) -> None:
        is_whole = False
        for member in self._tar.members():
            self._count(member)
            path = _path_of(member)
            if path:
                self._take(path, member)
            else:
                is_whole = member.isdir()
        if not is_whole:
            raise tarfile.ReadError("it holds no workspace")

    def _count(self, member: tarfile.TarInfo) -> None:
        unpacked, bounds = self._unpacked, self._bounds
        unpacked.entries += 1
        unpacked.size_bytes += member.size
        if unpacked.size_bytes > bounds.size_bytes:
            raise LimitReached("disk", allowed=bounds.size_bytes, used=unpacked.size_bytes)
        if unpacked.entries > bounds.entries:
            raise LimitReached("files", allowed=bounds.entries, used=unpacked.entries)

    def _take(self, path: bytes, member: tarfile.TarInfo) -> None:
        is_file = member.isreg() and not member.issparse()
        if self._guard.is_kept(path):
            self._guard.compare(path, member, self._tar.contents(member) if is_file else None)
        elif self._guard.is_above(path):
            if not member.isdir():
                self._unpacked.differs(path)
        elif path.count(b"/") >= MAX_DEPTH:
            self._unpacked.leave_out(path, f"deeper than {MAX_DEPTH} directories")
        elif member.isdir():
            os.fchmod(self._tree.directory(path, create=True), member.mode & 0o777 | stat.S_IRWXU)
        elif member.issym():
            self._tree.directory(path.rpartition(b"/")[0], create=True)
            self._tree.link(path, _bytes(member.linkname))
        elif member.islnk():
            self._link(path, member)
        elif is_file:
            self._write(path, member)
        else:
            self._unpacked.leave_out(path, "a socket, fifo or device")

    def _write(self, path: bytes, member: tarfile.TarInfo) -> None:
        folder, name = self._tree.parent(path, create=True)
        descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
        with self._tar.contents(member) as data, os.fdopen(descriptor, "wb") as writing:
            shutil.copyfileobj(data, writing, _CHUNK)
            os.fchmod(descriptor, member.mode & 0o777 | stat.S_IRUSR)
            writing.flush()
            seconds = min(max(int(member.mtime), 0), _LATEST_S)
            os.utime(descriptor, (seconds, seconds))

    def _link(self, path: bytes, member: tarfile.TarInfo) -> None:
        """Give a file another name, as it had inside."""
        there = _split(member.linkname)
        is_deep = there.count(b"/") >= MAX_DEPTH
        if is_deep or self._guard.is_kept(there) or self._tree.lstat(there) is None:
            self._unpacked.leave_out(path, f"another name of {os.fsdecode(there)!r}")
            return
        folder, name = self._tree.parent(there)
        held = os.dup(folder)
        try:
            folder, here = self._tree.parent(path, create=True)
            os.link(name, here, src_dir_fd=held, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(held)


def _path_of(member: tarfile.TarInfo) -> bytes:
    return _split(member.name)


def _split(name: str) -> bytes:
    """A name of the stream as a path in the workspace; empty for itself."""
    top, *parts = _bytes(name).rstrip(b"/").split(b"/")
    if top != TOP.encode() or any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        raise tarfile.ReadError(f"the name {name[:200]!r} leads elsewhere")
    return b"/".join(parts)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
