"""Reads a transcript on from where it was: whole records, nothing twice, nothing left out, told what was damaged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ringfence.runtime.transcript.lines import LineSplitter
from ringfence.runtime.transcript.record import Damage, Item, parse, parse_rest
from ringfence.runtime.transcript.source import SourceFile

_CHUNK_BYTES = 256 * 1024


class TranscriptReader:
    """Reads one file, by byte offset.

    Args:
        path: The file.
        below: As `SourceFile`.

    Raises:
        UsageError, RecordError: As `SourceFile`.
    """

    def __init__(self, path: Path, *, below: Path | None = None) -> None:
        self.path = path
        self._below = below
        self._is_removal_told = False
        self._source = SourceFile(path, below=below)
        self._splitter = LineSplitter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def offset(self) -> int:
        """Behind the last whole line that was read."""
        return self._splitter.offset

    @property
    def line(self) -> int:
        """The number of the next line."""
        return self._splitter.number

    @property
    def position(self) -> int:
        """Behind the last byte that was read."""
        return self._source.position

    def close(self) -> None:
        """Let go of the file."""
        self._source.close()

    def take(self, limit_bytes: int = _CHUNK_BYTES) -> list[Item] | None:
        """What the next bytes hold; None if there are no more of them now.

        Args:
            limit_bytes: How many at most.

        Raises:
            RecordError: The disk failed.
        """
        chunk = self._source.read(min(limit_bytes, _CHUNK_BYTES))
        if not chunk:
            return None
        return [item for line in self._splitter.feed(chunk) for item in parse(line)]

    def rest(self) -> list[Item]:
        """The last line, if it has no end. To be called when nothing more is waited for."""
        line = self._splitter.rest()
        return [] if line is None else parse_rest(line)

    def reopen_if_changed(self) -> Damage | None:
        """Begin anew if the file is not the one any more that was read so far; say so.

        One that was removed and has no successor yet is kept: another may come.

        Raises:
            UsageError, RecordError: What came in its place is no file that can be read.
        """
        change = self._source.change()
        if change is None or (change == "removed" and self._is_removal_told):
            return None
        if change == "removed":
            self._is_removal_told = True
            return Damage(self.line, self.offset, 0, None, "the file was removed while it was read")
        self._is_removal_told = False
        reason = f"the file was {change} while it was read; it is read anew from its first line"
        told = Damage(self.line, self.offset, 0, None, reason)
        source = SourceFile(self.path, below=self._below)
        self._source.close()
        self._source = source
        self._splitter = LineSplitter()
        return told


def read_items(path: Path, *, below: Path | None = None, until_bytes: int | None = None) -> Iterator[Item]:
    """All that a file holds, in order.

    Args:
        path: The file.
        below: As `SourceFile`.
        until_bytes: Take the file as if it ended there.

    Raises:
        UsageError, RecordError: As `SourceFile`.
    """
    with TranscriptReader(path, below=below) as reader:
        while until_bytes is None or reader.position < until_bytes:
            items = reader.take(_CHUNK_BYTES if until_bytes is None else until_bytes - reader.position)
            if items is None:
                break
            yield from items
        yield from reader.rest()
