"""Routes of this machine's runs that belong to no job: those of `ringfence run`, `exec`, `shell` and of loops.

They belong to the user of the machine, not to the fleet. Over TCP only tokens of scope `admin` can use these routes;
requests on the Unix socket have every scope.
"""

from itertools import islice
from pathlib import Path
from typing import Annotated

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Query
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse

from ringfence.fleet.api.access import ADMIN
from ringfence.fleet.api.context import ApiContext, Context
from ringfence.fleet.api.records import (
    DiffPath,
    EventLimit,
    Offset,
    PageLimit,
    Start,
    check_shown,
    page_of_diff,
    stream_events,
)
from ringfence.fleet.api.requests import ApplyRequest
from ringfence.fleet.queries.record_models import (
    AppliedResponse,
    ApplyRequestResponse,
    DiffResponse,
    LinesResponse,
    RecordResponse,
    RunDetail,
    RunResponse,
)
from ringfence.fleet.queries.records import (
    describe_restored,
    find_run,
    list_runs,
    show_record,
    show_run,
)
from ringfence.fleet.store.ended_jobs import runs_of_jobs
from ringfence.job.apply_request import apply_requests
from ringfence.job.changes import apply_changes, undo_changes
from ringfence.journal import run_dirs

router = APIRouter(tags=["runs"])
_MAX_LISTED = 500
_Run = Annotated[
    str,
    PathParameter(
        min_length=1, max_length=100, description="A run's id, or the beginning of its last eight digits."
    ),
]


@router.get("/v1/runs", dependencies=[ADMIN])
async def runs(
    context: Context,
    before: Annotated[str | None, Query(max_length=100, description="Runs older than this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 50,
) -> list[RunResponse]:
    """Runs of this machine, the newest first, without those of jobs. The next page is older than `before`."""
    paths = await anyio.to_thread.run_sync(_older_runs, before, 4 * limit)
    job_runs = await _runs_of_jobs(context, [path.name for path in paths])
    chosen = [path for path in paths if path.name not in job_runs][:limit]
    return await anyio.to_thread.run_sync(list_runs, chosen)


def _older_runs(before: str | None, limit: int) -> list[Path]:
    older = (path for path in run_dirs() if before is None or path.name < before)
    return list(islice(older, limit))


async def _runs_of_jobs(context: ApiContext, names: list[str]) -> frozenset[str]:
    if context.source is None:
        return frozenset()
    return await runs_of_jobs(context.source.database, names)


@router.get("/v1/apply-requests", dependencies=[ADMIN])
async def requests_to_apply() -> list[ApplyRequestResponse]:
    """Requests of programs on this machine to apply the changes of a run, the newest first; a person decides."""
    found = await anyio.to_thread.run_sync(apply_requests)
    return [ApplyRequestResponse(**msgspec.to_builtins(each)) for each in found]


@router.get("/v1/runs/{run}", dependencies=[ADMIN])
async def show(run: _Run) -> RunDetail:
    """One run of this machine."""
    return await show_run(await find_run(run))


@router.get(
    "/v1/runs/{run}/events",
    dependencies=[ADMIN],
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "A record on each line."}},
)
async def events(
    run: _Run,
    start: Start = 0,
    limit: EventLimit = None,
    is_followed: Annotated[bool, Query(alias="follow")] = False,
) -> StreamingResponse:
    """The record of a run, an event on each line; `follow`: until it ends."""
    return stream_events(await find_run(run), start=start, limit=limit, is_followed=is_followed)


@router.get("/v1/runs/{run}/record", dependencies=[ADMIN])
async def record(run: _Run) -> RecordResponse:
    """The summary of a run, and the verification of its record."""
    return await show_record(await find_run(run))


@router.get("/v1/runs/{run}/diff", dependencies=[ADMIN])
async def diff(
    run: _Run, path: DiffPath = None, offset: Offset = 0, limit: PageLimit = 500
) -> DiffResponse | LinesResponse:
    """The files that a run changed; with `path`, the lines of one of them. Both by pages."""
    return await page_of_diff(await find_run(run), path, offset, limit)


@router.post("/v1/runs/{run}/apply", dependencies=[ADMIN])
async def apply(run: _Run, wanted: ApplyRequest) -> AppliedResponse:
    """Apply the changes of a run to its workspace."""
    found = await find_run(run)
    check_shown(found.path, wanted.run_id)
    return await describe_restored(found.path, await apply_changes(found.path, force=wanted.force))


@router.post("/v1/runs/{run}/undo", dependencies=[ADMIN])
async def undo(run: _Run, wanted: ApplyRequest) -> AppliedResponse:
    """Undo the changes of a run in its workspace."""
    found = await find_run(run)
    check_shown(found.path, wanted.run_id)
    return await describe_restored(found.path, await undo_changes(found.path, force=wanted.force))
