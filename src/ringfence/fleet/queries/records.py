"""Reads the records of runs, on this machine or in the fleet's record store."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar
from sqlalchemy import select

from ringfence.errors import NotFound, RecordError, RingfenceError
from ringfence.events import WorkExported
from ringfence.fleet.queries.patches import PatchFile, read_files, read_lines
from ringfence.fleet.queries.record_models import (
    AppliedResponse,
    ChangedFile,
    DiffResponse,
    LinesResponse,
    RecordResponse,
    RunDetail,
    RunResponse,
    VerificationReport,
)
from ringfence.fleet.queries.source import FleetSource
from ringfence.fleet.record_store import RecordStore, fetch_record, open_record_store
from ringfence.fleet.store.job import Job
from ringfence.fleet.store.tables import ATTEMPTS
from ringfence.fleet.worker.record_upload import NOT_STORED
from ringfence.job.changes import ChangesState, changes_state
from ringfence.journal import (
    describe_verification,
    find_last_event,
    resolve,
    run_dir,
    summarize,
    verify_run,
)
from ringfence.journal.outcome import describe_run, read_outcome
from ringfence.sandbox.workspace.protect.flags import flag, reason
from ringfence.sandbox.workspace.restore import Restored
from ringfence.tool.text import replace_surrogates

_MAX_WARNINGS = 1000
_MAX_READERS = 4
_readers: RunVar[anyio.CapacityLimiter] = RunVar("record_readers")
_Result = TypeVar("_Result")


class RecordElsewhere(RingfenceError):
    """The record of a run is on another machine.

    Args:
        run_id: The run.
        host: The machine.
    """

    def __init__(self, run_id: str, host: str) -> None:
        self.host = host
        super().__init__(
            f"the record of run {run_id!r} is on machine {host!r}, and the fleet has no copy of it; read it there with "
            f"`ringfence runs show {run_id[-8:]}`, or set `fleet.records` so that later records are copied"
        )


@dataclass(frozen=True)
class FoundRecord:
    """A record that can be read on this machine."""

    path: Path
    """The run's directory, or an extracted copy of it."""
    is_here: bool
    """Whether the run was on this machine, so that its changes can be applied here."""
    host: str


async def find_job_record(source: FleetSource, job: Job, number: int | None = None) -> FoundRecord | None:
    """The record of an attempt at a job; None if there is no attempt yet.

    Args:
        source: The fleet.
        job: The job.
        number: The number of the attempt; None: the last one.

    Raises:
        NotFound: There is no such attempt.
        RecordElsewhere: The record is on another machine.
        RecordError: The record was removed, or its copy cannot be used.
        InfrastructureFault: The database or the record store cannot be read.
    """
    wanted = job.attempt if number is None else number
    query = select(ATTEMPTS).where(ATTEMPTS.c.job == job.id, ATTEMPTS.c.number == wanted)
    row = await source.database.read(lambda connection: connection.execute(query).mappings().first())
    if row is None and number is None:
        return None
    if row is None:
        raise NotFound(f"job {job.id!r} has no attempt {number}; it has {job.attempt}")
    run_id, host = row["run_id"], row["host"]
    if run_dir(run_id).is_dir():
        return FoundRecord(run_dir(run_id), is_here=True, host=host)
    store = None if row["record"] in (None, NOT_STORED) else _store_of(source)
    copy = None if store is None else await fetch_record(store, run_id)
    if copy is not None:
        return FoundRecord(copy, is_here=False, host=host)
    if host != socket.gethostname():
        raise RecordElsewhere(run_id, host)
    if row["ended_ms"] is None:
        return None  # the attempt has begun, but its run has not
    raise RecordError(f"the record of run {run_id!r} was removed from this machine, or its run never began")


async def find_run(reference: str) -> FoundRecord:
    """A run of this machine.

    Args:
        reference: The run's id, or the beginning of the id or of its last eight digits.

    Raises:
        NotFound: No run matches.
        UsageError: Several runs match.
    """
    path = await anyio.to_thread.run_sync(resolve, reference)
    return FoundRecord(path, is_here=True, host=socket.gethostname())


async def _read(read: Callable[[], _Result]) -> _Result:
    """Read a record in a thread. Large records take long, so they have few threads, and not those of the database."""
    try:
        limiter = _readers.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MAX_READERS)
        _readers.set(limiter)
    return await anyio.to_thread.run_sync(read, limiter=limiter)


def _store_of(source: FleetSource) -> RecordStore | None:
    if source.daemon is not None:
        return source.daemon.records
    return None if source.fleet is None else open_record_store(source.fleet.settings.records, source.state)


def list_runs(paths: Sequence[Path]) -> list[RunResponse]:
    """The summaries of the runs in these directories. This function blocks."""
    return [RunResponse(**replace_surrogates(msgspec.to_builtins(summarize(path)))) for path in paths]


async def show_run(record: FoundRecord) -> RunDetail:
    """The summary of a run with its end.

    Raises:
        RecordError: The record is damaged.
    """
    document = await _read(lambda: describe_run(record.path, read_outcome(record.path)))
    return RunDetail(**replace_surrogates(document), changes_state=await _state(record), host=record.host)


async def show_record(record: FoundRecord) -> RecordResponse:
    """The summary of a run, and the verification of its record.

    Raises:
        RecordError: There is no journal, or a key file is damaged.
    """
    verified = await _read(lambda: describe_verification(verify_run(record.path)))
    return RecordResponse(
        run=await show_run(record), verification=VerificationReport(**replace_surrogates(verified))
    )


async def show_diff(record: FoundRecord, *, offset: int, limit: int) -> DiffResponse:
    """The files that a run changed, from the patch in its record.

    Raises:
        RecordError: The record cannot be read.
    """
    files = await _read(partial(read_files, record.path))
    event = await _read(partial(find_last_event, record.path, "work.exported"))
    work = event if isinstance(event, WorkExported) else None
    return DiffResponse(
        run_id=record.path.name,
        state=await _state(record),
        files=[_changed(each) for each in files[offset : offset + limit]],
        offset=offset,
        total=len(files),
        insertions=sum(each.insertions for each in files),
        deletions=sum(each.deletions for each in files),
        warnings=replace_surrogates(work.runs_on_your_machine[:_MAX_WARNINGS]) if work is not None else [],
        notes=replace_surrogates(work.notes) if work is not None else [],
        refs=replace_surrogates(work.refs) if work is not None else [],
    )


async def show_lines(record: FoundRecord, path: str, *, offset: int, limit: int) -> LinesResponse:
    """Lines of the patch of one file.

    Raises:
        RecordError: The patch has no such file, or cannot be read.
    """
    page = await _read(lambda: read_lines(record.path, path, offset=offset, limit=limit))
    return LinesResponse(run_id=record.path.name, path=path, offset=offset, **asdict(page))


async def describe_restored(run: Path, restored: Restored | None) -> AppliedResponse:
    """Describe what applying, undoing or rejecting the changes of a run wrote to the workspace."""
    if restored is None:
        return AppliedResponse(run_id=run.name, state=await changes_state(run), files=[], notes=[])
    notes = [
        f"{path}: what it held before could not be kept, so it is left as it is" for path in restored.kept
    ]
    notes += [f"{path}: the run made it and no snapshot holds it; it is left" for path in restored.left]
    notes += [f"{path}: overwritten, and kept" for path in restored.overwritten]
    notes += [
        f"{path}: a repository of the run; moved to {place}" for path, place in restored.repositories.moved
    ]
    notes += [
        f"{path}: a repository of the run, still there ({why})" for path, why in restored.repositories.stuck
    ]
    notes += [
        f"{path}: still there ({reason(path)}); no snapshot holds what git ignores"
        for path in restored.active
    ]
    return AppliedResponse(
        run_id=run.name,
        state=await changes_state(run),
        files=replace_surrogates([change.path for change in restored.diff.files]),
        notes=replace_surrogates(notes),
    )


async def _state(record: FoundRecord) -> ChangesState:
    return await changes_state(record.path) if record.is_here else "unknown"


def _changed(found: PatchFile) -> ChangedFile:
    return ChangedFile(**asdict(found), warning=reason(found.path) if flag([found.path]) else None)
