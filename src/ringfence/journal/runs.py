"""The runs of this state directory: listing, finding, and closing those whose process died.

A summary reads the first and the last lines of a journal, not what is between, and verifies nothing.
"""

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path

import msgspec

from ringfence.config.paths import state_dir
from ringfence.errors import ExitCode, RecordError, UsageError
from ringfence.events import Event, JobCreated, JobEnded, JournalOpened, JournalSealed
from ringfence.journal.blobs import BlobStore, unpack
from ringfence.journal.lock import is_alive
from ringfence.journal.reading import read
from ringfence.journal.record import (
    JOURNAL_NAME,
    MAX_LINE_BYTES,
    convert_event,
    decode_event,
    decode_header,
    format_time,
)
from ringfence.journal.session import export, write_session
from ringfence.journal.writing import Journal

_RUN_ID = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{8}")
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


def new_run_id(now: datetime | None = None) -> str:
    """A name for a new run: its time in UTC and eight hexadecimal digits, so that later names sort after earlier ones.

    Three of the digits are the second's fraction, in 4096ths; five are random.
    """
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    fraction = moment.microsecond * 4096 // 1_000_000
    return f"{moment:%Y-%m-%dT%H-%M-%S}-{fraction:03x}{secrets.token_hex(3)[1:]}"


def runs_dir() -> Path:
    """Where the runs are."""
    return state_dir() / "runs"


def run_dirs() -> list[Path]:
    """The directories of all runs, the newest first."""
    if not runs_dir().is_dir():
        return []
    return sorted((path for path in runs_dir().iterdir() if _RUN_ID.fullmatch(path.name)), reverse=True)


def run_dir(run_id: str) -> Path:
    """The directory of a run, whether it exists or not.

    Raises:
        UsageError: It is no run id.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise UsageError(f"{run_id!r} is no run id; `ringfence runs ls` lists the runs")
    return runs_dir() / run_id


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
        labels=created.labels if created else {},
    )


def creation_of(path: Path) -> JobCreated | None:
    """How the run in `path` was asked for; None if its record does not say."""
    try:
        return _first_events(path)[1]
    except RecordError:
        return None


def mark_interrupted(path: Path) -> bool:
    """Close the record of a run whose process died: repair it, append `job.ended`, seal it.

    The session file is written too.

    Returns:
        False if the run needed none of it: it is alive, or has its end and its seal.

    Raises:
        RecordError: The journal is damaged, so nothing is added to it.
        InfrastructureFault: It could not be written.
    """
    if is_alive(path) or not (path / JOURNAL_NAME).is_file():
        return False
    sealed, _ = _last_events(path)
    if sealed:
        return False
    with Journal.reopen(path) as journal:
        end = _interruption(path)
        if end is not None:
            journal.append(end)
        session = export(path).encode()
        journal.seal(session=session)
    write_session(path, session)
    return True


def _interruption(path: Path) -> JobEnded | None:
    """The end that a journal lacks; None if it has one."""
    times: list[datetime] = []
    for record in read(path):
        if isinstance(record.event, JobEnded):
            return None
        times = [*times[:1], record.time]
    return JobEnded(
        state="interrupted",
        exit_code=ExitCode.INFRASTRUCTURE,
        reason="its process died before the run ended",
        duration_s=(times[-1] - times[0]).total_seconds(),
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
        fields = unpack(header.data, BlobStore(path / "blobs"))
    return (
        convert_event(header.event, fields)
        if isinstance(fields, dict)
        else decode_event(header.event, header.data)
    )
