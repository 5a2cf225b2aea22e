"""Reading records back: the events of a run, finished or as it goes on, and the runs of this state directory.

Reading does not verify. It refuses what does not parse, and stops before a last line that has no end. A summary reads
the first and the last lines of a journal, not what is between.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import msgspec

from ringfence.errors import RecordError, UsageError
from ringfence.events import Event, JobCreated, JobEnded, JournalOpened, JournalSealed
from ringfence.journal.blobs import BlobStore, unpack
from ringfence.journal.disk import is_alive
from ringfence.journal.layout import BLOBS_NAME, JOURNAL_NAME, journal_path, run_dirs
from ringfence.journal.record import (
    MAX_LINE_BYTES,
    Record,
    convert_event,
    decode_event,
    decode_header,
    digest_of,
    format_time,
)

_BATCH = 256
_TIMESTAMP_LENGTH = len("2026-01-28T10-30-45")
_TAIL_STEPS = (8 * 1024, 128 * 1024, MAX_LINE_BYTES)
_HEAD_LINES = 4
_HEAD_LINE = re.compile(r"[a-z]+: \S")
_OPENING_CHARS = 2000
_TAIL_EVENTS = 8


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run at a glance."""

    id: str
    path: str
    state: str
    """`running`, `interrupted` (its process died), `damaged` (does not parse), else the terminal state."""
    is_sealed: bool
    started_at: str | None = None
    duration_s: float | None = None
    prompt: str = ""
    """Its first line."""
    model: str = ""
    reason: str = ""
    exit_code: int | None = None
    cost_usd: float | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)


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


def list_runs(limit: int | None = None) -> list[RunSummary]:
    """Summaries, the newest first."""
    return [summarize(path) for path in run_dirs()[:limit]]


def resolve(reference: str) -> Path:
    """The directory of the run that `reference` means.

    Args:
        reference: A run id, the beginning of one, or the beginning of its eight last digits.

    Raises:
        UsageError: No run fits, or several do.
    """
    found = fitting(reference)
    if not found:
        raise UsageError(f"there is no run {reference!r}; `ringfence runs ls` lists the runs")
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:3])
        raise UsageError(f"{reference!r} fits {len(found)} runs ({names}, ...); give more of its id")
    return found[0]


def fitting(reference: str) -> list[Path]:
    """The directories of the runs that `reference` can mean, as for `resolve`."""
    paths = run_dirs()
    exact = [path for path in paths if path.name == reference]
    return exact or [path for path in paths if reference and _fits(path.name, reference)]


def summarize(path: Path) -> RunSummary:
    """The summary of the run in `path`; damage makes it `damaged`, never an error."""
    try:
        sealed, ended = _last_events(path)
        opened_at, created = _first_events(path)
    except (RecordError, OSError) as exc:
        return RunSummary(id=path.name, path=str(path), state="damaged", is_sealed=False, reason=str(exc))
    state = ended.state if ended else "running" if is_alive(path) else "interrupted"
    return RunSummary(
        id=path.name,
        path=str(path),
        state=state,
        is_sealed=sealed,
        started_at=format_time(opened_at) if opened_at else None,
        duration_s=ended.duration_s if ended else None,
        prompt=_opening(created.prompt) if created else "",
        model=created.model if created else "",
        reason=ended.reason if ended else "",
        exit_code=ended.exit_code if ended else None,
        cost_usd=ended.cost_usd if ended else None,
        labels=dict(created.configuration.get("labels") or {}) if created else {},
    )


def creation_of(path: Path) -> JobCreated | None:
    """How the run in `path` was asked for; None if its record does not say."""
    try:
        return _first_events(path)[1]
    except RecordError:
        return None


class _Cursor:
    def __init__(self, path: Path) -> None:
        self.path = journal_path(path)
        self._number = 0
        self._blobs = BlobStore(self.path.parent / BLOBS_NAME)
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


def _fits(run_id: str, reference: str) -> bool:
    return run_id.startswith(reference) or run_id[_TIMESTAMP_LENGTH + 1 :].startswith(reference)


def _opening(text: str) -> str:
    """Its first line; or, where it has a head as a loop's have, all of that: whose turn it was, at which story."""
    lines = [line.strip() for line in text[:_OPENING_CHARS].strip().splitlines()]
    head = list(takewhile(_HEAD_LINE.match, lines))
    return (", ".join(head) or next(iter(lines), ""))[:200]


def _first_events(path: Path) -> tuple[datetime | None, JobCreated | None]:
    opened_at: datetime | None = None
    for number, record in enumerate(read(path)):
        if isinstance(record.event, JournalOpened):
            opened_at = record.time
        if isinstance(record.event, JobCreated):
            return opened_at, record.event
        if number >= _HEAD_LINES:
            break
    return opened_at, None


def _last_events(path: Path) -> tuple[bool, JobEnded | None]:
    sealed = False
    for event in islice(_backwards(path), _TAIL_EVENTS):
        if isinstance(event, JournalSealed):
            sealed = True
        elif isinstance(event, JobEnded):
            return sealed, event
    return sealed, None


def _backwards(path: Path) -> Iterator[Event]:
    """The last events, the last one first; at most what fits the longest line."""
    journal = path / JOURNAL_NAME
    size = journal.stat().st_size
    given = 0
    for step in _TAIL_STEPS:
        with journal.open("rb") as file:
            start = max(0, size - step)
            file.seek(start)
            lines = file.read(step).split(b"\n")[:-1]  # what follows the last newline is torn
        whole = lines if start == 0 else lines[1:]
        for line in reversed(whole[: len(whole) - given]):
            yield _event(line, path)
        given = max(given, len(whole))
        if start == 0:
            return


def _event(line: bytes, path: Path) -> Event:
    try:
        header = decode_header(line)
    except ValueError as exc:
        raise RecordError(f"a line of {path.name!r} does not parse: {exc}") from exc
    fields: object = None
    with suppress(RecordError):
        fields = unpack(header.data, BlobStore(path / BLOBS_NAME))
    return (
        convert_event(header.event, fields)
        if isinstance(fields, dict)
        else decode_event(header.event, header.data)
    )
