"""Bytes in, lines out, however the bytes are cut. Memory is bounded by the longest line that is let through."""

from hashlib import sha256

import msgspec

MAX_LINE_BYTES = 16 * 1024**2
"""A longer line is passed over: its size and hash are told, not what it says."""


class Line(msgspec.Struct, frozen=True):
    """A line without its end. `data` is None where it was too long; then `digest` is its SHA-256."""

    number: int
    """Counted from 1."""
    offset: int
    """Of its first byte in the file."""
    size: int
    data: bytes | None
    digest: str | None = None


class LineSplitter:
    """Cuts a stream of bytes into lines.

    Args:
        limit_bytes: The longest line that is let through.
    """

    def __init__(self, *, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self.offset = 0
        """Where the line begins that is not whole yet."""
        self.number = 1
        """Which line that is."""
        self._limit = limit_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._hash = sha256()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Take more bytes; return the lines that they end."""
        *ends, last = chunk.split(b"\n")
        lines = [self._ended(piece) for piece in ends]
        if last:
            self._keep(last)
        return lines

    def rest(self) -> Line | None:
        """The last line, which has no end; None if there is none. To be called when no more bytes will come."""
        return self._ended(b"") if self._size else None

    def _ended(self, piece: bytes) -> Line:
        if piece:
            self._keep(piece)
        if self._is_too_long:
            line = Line(self.number, self.offset, self._size, None, self._hash.hexdigest())
            self._hash, self._is_too_long = sha256(), False
        else:
            line = Line(self.number, self.offset, self._size, b"".join(self._pieces))
        self.offset += self._size + 1
        self.number += 1
        self._pieces.clear()
        self._size = 0
        return line

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._is_too_long:
            self._hash.update(piece)
            return
        self._pieces.append(piece)
        if self._size > self._limit:
            self._is_too_long = True
            for kept in self._pieces:
                self._hash.update(kept)
            self._pieces.clear()
