"""Routes of the loops of this machine.

The routes import the modules of loops, so that a daemon loads them only when a client requests loops. Over
TCP only tokens of scope `admin` can use them, as for the runs of the machine.
"""

from dataclasses import asdict
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path

from ringfence.errors import RingfenceError
from ringfence.fleet.api.access import ADMIN
from ringfence.fleet.api.context import Context
from ringfence.fleet.queries.record_models import LoopResponse
from ringfence.tool.text import replace_surrogates

router = APIRouter(tags=["loops"])
_Loop = Annotated[str, Path(min_length=1, max_length=100, description="A loop's id, or the end of it.")]


@router.get("/v1/loops", dependencies=[ADMIN])
async def loops(context: Context) -> list[LoopResponse]:
    """The loops of this machine, the newest first."""
    return await anyio.to_thread.run_sync(_list, context)


def _list(context: Context) -> list[LoopResponse]:
    from ringfence.loop.directory import loop_directories
    from ringfence.loop.report.reader import summarize_loop
    from ringfence.loop.store import read_store

    found = []
    for directory in loop_directories(context.state):
        try:
            row = summarize_loop(directory, read_store(directory))
        except RingfenceError as exc:  # written by another version, or damaged; the other loops are listed
            row = {"id": directory.id, "state": "damaged", "reason": str(exc), "stories": 0, "passed": 0}
            row |= {"source": "", "branch": "", "created_ms": 0, "ended_ms": None}
        found.append(LoopResponse(**replace_surrogates(row)))
    return found


@router.get("/v1/loops/{loop}", dependencies=[ADMIN])
async def show(loop: _Loop, context: Context) -> dict[str, Any]:
    """The report of a loop, as `ringfence loop show --json` prints it."""
    from ringfence.loop.directory import find_loop
    from ringfence.loop.report.reader import read_report

    directory = await anyio.to_thread.run_sync(find_loop, loop, context.state)
    report: dict[str, Any] = replace_surrogates(_plain(asdict(await read_report(directory))))
    return report


def _plain(value: Any) -> Any:
    """Return a value with lists in place of tuples, as in JSON."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
