"""Reads records: the events of a run that has ended or is still alive, and summaries of the runs in a state directory.

Reading does not verify a record. A line that does not parse is an error, and reading stops before an incomplete last
line. A summary reads only the first and the last lines of a journal.
"""

import os
import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, Self

import anyio
import msgspec

from ringfence.errors import NotFound, RecordError, UsageError
from ringfence.events import (
    Event,
    JobCreated,
    JobEnded,
    JobStarted,
    JournalOpened,
    JournalSealed,
    WorkExported,
)
from ringfence.journal.blobs import BlobStore, decode, unpack
from ringfence.journal.disk import is_alive
from ringfence.journal.layout import BLOBS_NAME, JOURNAL_NAME, journal_path, open_regular, run_dirs
from ringfence.journal.record import (
    MAX_LINE_BYTES,
    Record,
    decode_header,
    digest_of,
    event_of,
    format_time,
)

_BATCH = 256
_CHUNK_BYTES = 1024**2
_TIMESTAMP_LENGTH = len("2026-01-28T10-30-45")
_TAIL_LENGTHS = (8 * 1024, 128 * 1024, MAX_LINE_BYTES)
_HEAD_LINES = 4
_EVENT_NAME = re.compile(rb'\{"seq":[0-9]+,"time":"[^"]*","prev":"[^"]*","event":"([a-z_.]+)"')
"""The beginning of a line as writers of every version write it."""
_HEADER_LINE = re.compile(r"[a-z]+: \S")
_PROMPT_CHARS = 2000
_TAIL_EVENTS = 8
_SEARCHED_BYTES = 4 * 1024**2


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a run, as lists show it."""

    id: str
    path: str
    state: str
    """`running`, `interrupted` (the process died), `damaged` (the journal does not parse), or the terminal state."""
    is_sealed: bool
    started_at: str | None = None
    duration_s: float | None = None
    prompt: str = ""
    """The first line of the prompt."""
    model: str = ""
    reason: str = ""
    exit_code: int | None = None
    cost_usd: float | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    workspace: str = ""


def read(path: Path, *, start: int = 0) -> Iterator[Record]:
    """Yield the records of a journal, or of the run in a directory, in order, with their blobs loaded.

    Args:
        path: The journal, or the directory of a run.
        start: The number of records to skip; negative: to yield only so many, the last ones.

    Raises:
        RecordError: The journal is absent, a line does not parse, or a blob is absent or damaged.
    """
    with _Cursor(path) as cursor:
        cursor.skip(start)
        while records := cursor.read_records(1):
            yield from records


async def follow(path: Path, *, start: int = 0, poll_s: float = 0.05) -> AsyncIterator[Record]:
    """Yield the records of a journal, then new ones; end at the seal, or when the writer has died.

    Args:
        path: The journal, or the directory of a run.
        start: As for `read`.
        poll_s: The delay between two checks for new records.

    Raises:
        RecordError: As `read`.
    """
    cursor = await anyio.to_thread.run_sync(_Cursor, path)
    with cursor:
        await anyio.to_thread.run_sync(cursor.skip, start)
        while True:
            alive = await anyio.to_thread.run_sync(is_alive, cursor.path.parent)
            records = await anyio.to_thread.run_sync(cursor.read_records, _BATCH)
            for record in records:
                yield record
                if isinstance(record.event, JournalSealed):
                    return
            if (
                not records and not alive
            ):  # `is_alive` was called before reading, so the last lines have been read
                return
            if not records:
                await anyio.sleep(poll_s)


def list_runs(limit: int | None = None) -> list[RunSummary]:
    """Return summaries of the runs, the newest first."""
    return [summarize(path) for path in run_dirs()[:limit]]


def resolve(reference: str) -> Path:
    """Return the directory of the run that `reference` means.

    Args:
        reference: A run id, the beginning of one, or the beginning of its eight last digits.

    Raises:
        NotFound: No run matches.
        UsageError: Several runs match.
    """
    matches = matching_runs(reference)
    if not matches:
        raise NotFound(f"there is no run {reference!r}; `ringfence runs ls` lists the runs")
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches[:3])
        raise UsageError(f"{reference!r} fits {len(matches)} runs ({names}, ...); give more of its id")
    return matches[0]


def matching_runs(reference: str) -> list[Path]:
    """Return the directories of the runs that `reference` can mean, as in `resolve`."""
    paths = run_dirs()
    exact = [path for path in paths if path.name == reference]
    return exact or [path for path in paths if reference and _matches(path.name, reference)]


def summarize(path: Path) -> RunSummary:
    """Return the summary of the run in `path`. A damaged journal gives the state `damaged` instead of an error."""
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
        prompt=_first_line(created.prompt) if created else "",
        model=created.model if created else "",
        reason=ended.reason if ended else "",
        exit_code=ended.exit_code if ended else None,
        cost_usd=ended.cost_usd if ended else None,
        labels=dict(created.configuration.get("labels") or {}) if created else {},
        workspace=created.workspace if created else "",
    )


def creation_of(path: Path) -> JobCreated | None:
    """Return the `job.created` of the run in `path`; None if its record has none."""
    try:
        return _first_events(path)[1]
    except RecordError:
        return None


def find_last_event(path: Path, name: str) -> Event | None:
    """Return the last event of a name, such as `work.exported`, in the last 4 MiB of the journal of a run.

    Args:
        path: The directory of the run.
        name: The event's name.

    Raises:
        RecordError: The journal cannot be read, or the line does not parse.
    """
    try:
        with open_regular(path / JOURNAL_NAME) as file:
            start = max(0, os.fstat(file.fileno()).st_size - _SEARCHED_BYTES)
            file.seek(start)
            lines = file.read(_SEARCHED_BYTES).split(b"\n")[:-1]
    except OSError as exc:
        raise RecordError(f"the journal of {path.name!r} cannot be read: {exc.strerror}") from exc
    marker = f'"{name}"'.encode()
    for line in reversed(lines[1:] if start else lines):
        if marker in line:
            event = _event_of_line(line, path, BlobStore(path / BLOBS_NAME))
            if event.name == name:
                return event
    return None


def read_named(path: Path, names: frozenset[str]) -> Iterator[Record]:
    """Yield the records of the run in a directory whose events have one of these names, in order.

    The lines of other events are not parsed, so that a record of 100 MB takes a fraction of a second.

    Raises:
        RecordError: As `read`.
    """
    with _Cursor(path) as cursor:
        yield from cursor.read_named(names)


def has_opened_sandbox(path: Path) -> bool:
    """Whether the run in `path` worked in a sandbox: it began, or, in a record with a line missing, delivered work.

    A record that is damaged before it says so counts as one that did.
    """
    try:
        return any(isinstance(record.event, JobStarted | WorkExported) for record in read(path))
    except RecordError:
        return True


class _Cursor:
    """A position in a journal from which records are read."""

    def __init__(self, path: Path) -> None:
        self.path = journal_path(path)
        self._number = 0
        self._blobs = BlobStore(self.path.parent / BLOBS_NAME)
        try:
            self._file: BinaryIO = open_regular(self.path)
        except OSError as exc:
            raise RecordError(
                f"the journal {str(self.path)!r} cannot be read: {exc.strerror}; "
                "`ringfence runs ls` lists the runs"
            ) from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def skip(self, start: int) -> None:
        """Skip lines without reading their content: `start`, or all but the last `-start`."""
        count = start if start >= 0 else max(0, self._count_lines() + start)
        while self._number < count and self._file.readline(MAX_LINE_BYTES + 1).endswith(b"\n"):
            self._number += 1

    def _count_lines(self) -> int:
        count = 0
        while chunk := self._file.read(_CHUNK_BYTES):
            count += chunk.count(b"\n")
        self._file.seek(0)
        return count

    def read_named(self, names: frozenset[str]) -> Iterator[Record]:
        """Yield the records of further complete lines whose events have one of these names."""
        while (line := self._file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
            self._number += 1
            name = _EVENT_NAME.match(line)
            if name is None or name[1].decode() in names:
                yield self._record(line)
        if len(line) > MAX_LINE_BYTES:
            raise self._line_error(f"it is longer than {MAX_LINE_BYTES} bytes")

    def read_records(self, count: int) -> list[Record]:
        """Return the records of up to `count` further complete lines."""
        records: list[Record] = []
        while len(records) < count:
            start = self._file.tell()
            line = self._file.readline(MAX_LINE_BYTES + 1)
            if not line.endswith(b"\n"):
                if len(line) > MAX_LINE_BYTES:
                    raise self._line_error(f"it is longer than {MAX_LINE_BYTES} bytes")
                self._file.seek(start)
                break
            self._number += 1
            records.append(self._record(line))
        return records

    def _record(self, line: bytes) -> Record:
        try:
            header = decode_header(line)
        except ValueError as exc:
            raise self._line_error(str(exc)) from exc
        return Record(
            seq=header.seq,
            time=header.time,
            prev=header.prev,
            event=event_of(header.event, unpack(header.data, self._blobs)),
            digest=digest_of(line),
        )

    def _line_error(self, reason: str) -> RecordError:
        return RecordError(
            f"line {self._number} of {str(self.path)!r} cannot be read: {reason}; run `ringfence runs verify`"
        )


def _matches(run_id: str, reference: str) -> bool:
    return run_id.startswith(reference) or run_id[_TIMESTAMP_LENGTH + 1 :].startswith(reference)


def _first_line(text: str) -> str:
    """Return a prompt's first line, or all header lines of a loop's prompt, which name the role and the story."""
    lines = [line.strip() for line in text[:_PROMPT_CHARS].strip().splitlines()]
    header = list(takewhile(_HEADER_LINE.match, lines))
    return (", ".join(header) or next(iter(lines), ""))[:200]


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
    """Return whether the journal is sealed, and its `job.ended`, both from its last lines."""
    blobs = BlobStore(path / BLOBS_NAME)
    for length in _TAIL_LENGTHS:
        lines, is_all = _last_lines(path / JOURNAL_NAME, length)
        is_sealed = False
        for line in reversed(lines):
            event = _event_of_line(line, path, blobs)
            is_sealed = is_sealed or isinstance(event, JournalSealed)
            if isinstance(event, JobEnded):
                return is_sealed, event
        if is_all or len(lines) == _TAIL_EVENTS:
            break
    return is_sealed, None


def _last_lines(journal: Path, length: int) -> tuple[list[bytes], bool]:
    """Return the last complete lines within `length` bytes, and whether the file has no others."""
    with open_regular(journal) as file:
        start = max(0, os.fstat(file.fileno()).st_size - length)
        file.seek(start)
        lines = file.read(length).split(b"\n")[:-1]  # the part after the last newline is incomplete
    complete = lines[1:] if start else lines
    return complete[-_TAIL_EVENTS:], not start


def _event_of_line(line: bytes, path: Path, blobs: BlobStore) -> Event:
    """Return a line's event; one whose blob cannot be read has only the fields in the line."""
    try:
        header = decode_header(line)
    except ValueError as exc:
        raise RecordError(f"a line of {path.name!r} does not parse: {exc}") from exc
    try:
        return event_of(header.event, unpack(header.data, blobs))
    except RecordError:
        return event_of(header.event, decode(header.data))
