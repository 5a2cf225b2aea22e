"""Reads hostile tar streams within bounds, and defines the types that packing and unpacking share."""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from ringfence.errors import LimitReached
from ringfence.frozen import frozen

TOP = "workspace"
"""Name of the workspace's top directory in a stream."""
CHUNK_BYTES = 1024**2
_BUFFER_BYTES = 16 * 1024
_HEADERS_BYTES = 64 * 1024
"""The longest run of headers: `tarfile` keeps each in memory, and recurses where one extends another."""
_MAX_KEPT = 1000
_MAX_IN_NOTE = 20
SHOWN_NAME_CHARS = 200
_NAME_BYTES = 4096
DAMAGED = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)
"""Errors of reading a stream that is not an archive, or one with a name that leads out of its target."""

Read = Callable[[int], bytes]
"""Returns the next bytes of a stream, about as many as requested; empty at the end."""
Write = Callable[[bytes], object]
"""Called with the next bytes of a stream."""


@frozen
class Bounds:
    """Limits on the contents of one stream."""

    size_bytes: int
    entries: int


@dataclass
class Transfer:
    """The contents of a stream, counted."""

    files: int = 0
    entries: int = 0
    size_bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    """Entries that were not transferred, each with the reason; only the first few are kept."""
    put_back: list[str] = field(default_factory=list)
    """Protected paths that had been changed inside; only the first few are kept."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on a downloaded workspace."""
        notes = []
        if self.put_back:
            changed = ", ".join(self.put_back[:_MAX_IN_NOTE])
            notes.append(f"protected files were changed inside and put back: {changed}")
        if self.left_out:
            notes.append(f"not downloaded from the engine: {', '.join(self.left_out[:_MAX_IN_NOTE])}")
        return tuple(notes)

    def leave_out(self, path: bytes, why: str) -> None:
        """Note an entry that is not transferred."""
        if len(self.left_out) < _MAX_KEPT:
            self.left_out.append(f"{os.fsdecode(path[:_NAME_BYTES])!r} ({why})")

    def note_change(self, path: bytes) -> None:
        """Note a protected path that had been changed."""
        if len(self.put_back) < _MAX_IN_NOTE:
            self.put_back.append(repr(os.fsdecode(path)))

    def count(self, member: tarfile.TarInfo, bounds: Bounds) -> None:
        """Count an entry.

        Raises:
            LimitReached: It exceeds the bounds.
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

    Names that are not UTF-8 are escaped (`surrogateescape`).

    Raises:
        tarfile.TarError: It is not an archive.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._bytes_read = 0
        self._bytes_limit = _HEADERS_BYTES
        self._tar = tarfile.open(  # noqa: SIM115 -- it opens no file
            mode="r|",
            fileobj=cast("BinaryIO", self),
            encoding="utf-8",
            errors="surrogateescape",
            bufsize=_BUFFER_BYTES,
        )

    def read(self, count: int) -> bytes:
        """Read the next bytes of the stream for `tarfile`; raise an error if a run of headers is too long."""
        if self._bytes_read > self._bytes_limit:
            raise tarfile.ReadError("it holds headers without end")
        data = self._read(count)
        self._bytes_read += len(data)
        return data

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Yield each header. Its `size` is not negative, but not bounded.

        Raises:
            DAMAGED: The stream is damaged, or has too long a run of headers.
        """
        while (member := self._next()) is not None:
            if member.size < 0:  # an extended header can declare that
                raise tarfile.ReadError(f"a file of {member.size} bytes")
            # The position where the next header is expected, plus the longest run of headers.
            self._bytes_limit = self._tar.offset + _HEADERS_BYTES
            yield member

    def _next(self) -> tarfile.TarInfo | None:
        # `tarfile` keeps all headers, and a million of them take a gigabyte, so they are dropped.
        self._tar.members = []  # type: ignore[attr-defined]  # typeshed lacks it
        self._tar.pax_headers = {}
        return self._tar.next()

    def contents(self, member: tarfile.TarInfo) -> io.BufferedReader:
        """The contents of the regular file that `members` yielded last."""
        return cast("io.BufferedReader", self._tar.extractfile(member))


def encode_name(name: str) -> bytes:
    """The bytes of a member's name."""
    return name.encode("utf-8", "surrogateescape")


def parse_name(name: str) -> list[bytes]:
    """The components of a member's name.

    Raises:
        tarfile.ReadError: It leads out of the target.
    """
    parts = encode_name(name).removeprefix(b"./").rstrip(b"/").split(b"/")
    if any(part in (b"", b".", b"..") or b"\0" in part for part in parts):
        raise tarfile.ReadError(f"the name {name[:SHOWN_NAME_CHARS]!r} leads elsewhere")
    return parts
