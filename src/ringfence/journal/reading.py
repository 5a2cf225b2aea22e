"""Reading a journal back: typed events, of a finished run or as a running one writes them.

Reading does not verify. It refuses what does not parse, and stops before a last line that has no end.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import msgspec

from ringfence.errors import RecordError
from ringfence.events import Event, JournalSealed
from ringfence.journal.blobs import BlobStore, unpack
from ringfence.journal.lock import is_alive
from ringfence.journal.record import (
    MAX_LINE_BYTES,
    Record,
    convert_event,
    decode_event,
    decode_header,
    digest_of,
)
from ringfence.journal.verification import journal_path

_BATCH = 256


def read(path: Path) -> Iterator[Record]:
    """The records of a journal (or of the run in a directory) in order, large bodies in place.

    Raises:
        RecordError: It is absent, a line does not parse, or a body beside it is absent or damaged.
    """
    with _Cursor(path) as cursor:
        while records := cursor.take(1):
            yield from records


async def follow(path: Path, *, poll_s: float = 0.05) -> AsyncIterator[Record]:
    """The records of a journal, then those that are added; ends at the seal, or when the writer is gone.

    Args:
        path: The journal, or the directory of a run.
        poll_s: How often to look for more.

    Raises:
        RecordError: As `read`.
    """
    cursor = await anyio.to_thread.run_sync(_Cursor, path)
    with cursor:
        while True:
            alive = await anyio.to_thread.run_sync(is_alive, cursor.path.parent)
            records = await anyio.to_thread.run_sync(cursor.take, _BATCH)
            for record in records:
                yield record
                if isinstance(record.event, JournalSealed):
                    return
            if not records and not alive:  # asked before reading: what it wrote last has been read
                return
            if not records:
                await anyio.sleep(poll_s)


class _Cursor:
    def __init__(self, path: Path) -> None:
        self.path = journal_path(path)
        self._number = 0
        self._blobs = BlobStore(self.path.parent / "blobs")
        try:
            self._file: BinaryIO = self.path.open("rb")
        except OSError as exc:
            raise RecordError(
                f"the journal {str(self.path)!r} cannot be read: {exc.strerror}; "
                "`ringfence runs ls` lists the runs"
            ) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def take(self, count: int) -> list[Record]:
        """Up to `count` more whole lines."""
        records: list[Record] = []
        while len(records) < count:
            start = self._file.tell()
            line = self._file.readline(MAX_LINE_BYTES + 1)
            if not line.endswith(b"\n"):
                if len(line) > MAX_LINE_BYTES:
                    raise self._fault(f"it is longer than {MAX_LINE_BYTES} bytes")
                self._file.seek(start)
                break
            self._number += 1
            records.append(self._record(line))
        return records

    def _record(self, line: bytes) -> Record:
        try:
            header = decode_header(line)
        except ValueError as exc:
            raise self._fault(str(exc)) from exc
        return Record(
            seq=header.seq,
            time=header.time,
            prev=header.prev,
            event=self._event(header.event, header.data),
            digest=digest_of(line),
        )

    def _event(self, tag: str, data: msgspec.Raw) -> Event:
        fields = unpack(data, self._blobs)
        return decode_event(tag, data) if fields is None else convert_event(tag, fields)

    def _fault(self, reason: str) -> RecordError:
        return RecordError(
            f"line {self._number} of {str(self.path)!r} cannot be read: {reason}; run `ringfence runs verify`"
        )
