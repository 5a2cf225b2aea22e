"""Shared code of the routes of jobs and of runs: events, pages of changes, and where changes can be applied."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from fastapi import Query
from fastapi.responses import StreamingResponse

from ringfence.errors import PolicyRefused, RecordError, RingfenceError
from ringfence.fleet.queries.record_models import DiffResponse, LinesResponse
from ringfence.fleet.queries.records import FoundRecord, RecordElsewhere, show_diff, show_lines
from ringfence.journal import Record, as_json, follow, read

MAX_PAGE = 5000
_BATCH = 200
Wait = Callable[[], Awaitable[FoundRecord | None]]
_MAX_INT = 2**31 - 1
AttemptNumber = Annotated[
    int | None, Query(ge=1, le=_MAX_INT, description="Which attempt; default: the last one.")
]
Offset = Annotated[int, Query(ge=0, le=_MAX_INT, description="How many are skipped.")]
PageLimit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many.")]
DiffPath = Annotated[str | None, Query(max_length=8192, description="A file, as the list of files names it.")]
Start = Annotated[
    int, Query(ge=-_MAX_INT, le=_MAX_INT, description="The first record; negative: so many, the last ones.")
]
EventLimit = Annotated[int | None, Query(ge=1, le=_MAX_INT, description="At most so many; default: all.")]


def here(record: FoundRecord) -> Path:
    """Return the directory of a run of this machine, whose changes can be applied here.

    Raises:
        RecordElsewhere: The run was on another machine; this one has at most a copy of its record.
    """
    if not record.is_here:
        raise RecordElsewhere(record.path.name, record.host)
    return record.path


def check_shown(run: Path, shown: str | None) -> None:
    """Check that a person saw the changes of this run.

    Args:
        run: The run's directory.
        shown: The id of the run whose changes were shown; None: not known.

    Raises:
        PolicyRefused: They were those of another run.
    """
    if shown is not None and shown != run.name:
        raise PolicyRefused(
            f"the last changes are those of run {run.name!r}, not the ones that were shown; look at them first",
            rule="changes-shown",
        )


async def page_of_diff(
    record: FoundRecord, path: str | None, offset: int, limit: int
) -> DiffResponse | LinesResponse:
    """Return a page of the files that a run changed, or of the lines of one file.

    Raises:
        RecordError: The record cannot be read, or has no such file.
    """
    if path is None:
        return await show_diff(record, offset=offset, limit=limit)
    return await show_lines(record, path, offset=offset, limit=limit)


def stream_events(
    record: FoundRecord | None,
    *,
    start: int,
    limit: int | None,
    is_followed: bool,
    wait: Wait | None = None,
) -> StreamingResponse:
    """Stream the events of a record as lines of JSON; without a record there are no lines.

    Args:
        record: The record; None: there is none yet.
        start: The first record number; negative: so many, the last ones.
        limit: The maximum number of events; None: all.
        is_followed: Continue until the run ends.
        wait: Waits for the record if there is none yet. It is called within the response, so that it is cancelled when
            the client leaves.
    """
    lines = _lines(record, start, limit, is_followed=is_followed, wait=wait)
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _lines(
    record: FoundRecord | None, start: int, limit: int | None, *, is_followed: bool, wait: Wait | None
) -> AsyncIterator[bytes]:
    if record is None and wait is not None:
        with suppress(RingfenceError):  # the route `record` reports the reason
            record = await wait()
    if record is None:
        return
    count = 0
    if is_followed:
        async for found in follow(record.path, start=start):
            yield _line(found)
            count += 1
            if count == limit:
                return
        return
    # A damaged record ends the response at the damage; the route `record` reports the reason.
    records = islice(read(record.path, start=start), limit)
    while batch := await anyio.to_thread.run_sync(lambda: _read_batch(records)):
        yield b"".join(map(_line, batch))


def _read_batch(records: "islice[Record]") -> list[Record]:
    batch: list[Record] = []
    try:
        batch.extend(islice(records, _BATCH))
    except RecordError:
        return batch
    return batch


def _line(record: Record) -> bytes:
    return json.dumps(as_json(record)).encode() + b"\n"
