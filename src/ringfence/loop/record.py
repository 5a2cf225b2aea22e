"""The record of a loop: a sealed journal for each round, of the same kind as a run's."""

import json
import time
from pathlib import Path

import anyio
import msgspec

from ringfence import __version__
from ringfence.errors import InfrastructureFault, RecordError
from ringfence.events import AnyEvent, JobCreated, JobEnded, Usage
from ringfence.journal import Journal, read, run_dir
from ringfence.loop.plans import plan_from_json
from ringfence.loop.state import EXIT_CODES
from ringfence.loop.store.loops import LoopStore
from ringfence.loop.store.rows import EventRow, LoopRow
from ringfence.tool.text import replace_surrogates

_LOOK_S = 0.5


class LoopRecord:
    """Writes down what happened to a loop, as its rows tell it.

    An event is a row first: what a process that died left out of its journal, the next one adds.

    Args:
        store: The loop's rows.
        row: The loop.
    """

    def __init__(self, store: LoopStore, row: LoopRow) -> None:
        self._store = store
        self._began = time.monotonic()
        directory = run_dir(row.record)
        is_there = (directory / "journal.jsonl").exists()
        self._last = _last_number(directory) if is_there else 0
        self._journal = Journal.reopen(directory) if is_there else Journal.create(directory, row.record)
        if not is_there:
            self._journal.append(_created(row))

    async def follow(self) -> None:
        """Write down what is new, until cancelled."""
        while True:
            await self.catch_up()
            await anyio.sleep(_LOOK_S)

    async def catch_up(self) -> None:
        """Write down all that is known by now."""
        for event in await self._store.events(self._last):
            self._journal.append(_typed(event))
            self._last = event.number

    async def close(self) -> None:
        """End it: sealed if the loop has come to an end. What cannot be asked for now the next process adds."""
        try:
            await self._end()
        except InfrastructureFault:
            self._journal.close()
        except BaseException:
            self._journal.close()
            raise

    async def _end(self) -> None:
        row = await self._store.get()
        await self.catch_up()
        if row.state.is_end:
            spent = await self._store.spent()
            self._journal.append(
                JobEnded(
                    state=row.state.value,
                    exit_code=EXIT_CODES[row.state],
                    reason=row.reason,
                    usage=Usage(),
                    cost_usd=spent.cost_usd,
                    duration_s=round(time.monotonic() - self._began, 3),
                )
            )
            await self._journal.finish()
        else:
            self._journal.close()


def _created(row: LoopRow) -> JobCreated:
    plan = plan_from_json(row.plan)
    return JobCreated(
        job_id=row.record,
        session_id=row.id,
        prompt=f"loop {row.id}, round {row.round}: {plan.title}, {len(plan.stories)} stories",
        model="",
        runtime="loop",
        toolset="",
        workspace=row.source,
        version=__version__,
        configuration=json.loads(row.configuration)["loop"],
    )


def _typed(row: EventRow) -> AnyEvent:
    values = {"event": row.type, "number": row.number, **row.data}
    if row.story is not None:
        values["story"] = row.story
    event: AnyEvent = msgspec.convert(replace_surrogates(values), type=AnyEvent)
    return event


def _last_number(directory: Path) -> int:
    """The number of the last event that a journal has."""
    try:
        numbers = [getattr(record.event, "number", 0) for record in read(directory)]
    except RecordError:
        return 0
    return max(numbers, default=0)
