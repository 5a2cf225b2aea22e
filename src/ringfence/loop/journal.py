"""Records the events of a loop in a journal like a run's, one for each round, which is sealed at the round's end."""

import json
import time
from pathlib import Path

import msgspec

from ringfence import __version__
from ringfence.errors import RecordError
from ringfence.events import AnyEvent, JobCreated, JobEnded, Usage
from ringfence.journal import Journal, read, run_dir
from ringfence.loop.plans import plan_from_json
from ringfence.loop.rows import EventRow, LoopRow
from ringfence.loop.state import EXIT_CODES
from ringfence.loop.store import LoopStore
from ringfence.tool.text import replace_surrogates


class LoopJournal:
    """Appends the events of a loop to its journal.

    Events are stored as rows first: events that a process which died did not append are appended by the next process.

    Args:
        store: The loop's rows.
    """

    def __init__(self, store: LoopStore) -> None:
        self._store, row = store, store.loop
        self._began = time.monotonic()
        directory = run_dir(row.record_run_id)
        is_there = (directory / "journal.jsonl").exists()
        last = _last_number(directory) if is_there else 0
        self._journal = (
            Journal.reopen(directory) if is_there else Journal.create(directory, row.record_run_id)
        )
        if not is_there:
            self._journal.append(_created(row))

        for event in store.events:
            if event.number > last:
                self._append(event)
        store.subscribe(self._append)

    def _append(self, event: EventRow) -> None:
        self._journal.append(_typed(event))

    async def close(self) -> None:
        """Close the journal; seal it if the loop has ended."""
        row = self._store.loop
        try:
            if row.state.is_end:
                self._journal.append(
                    JobEnded(
                        state=row.state.value,
                        exit_code=EXIT_CODES[row.state],
                        reason=row.reason,
                        usage=Usage(),
                        cost_usd=self._store.spent.cost_usd,
                        duration_s=round(time.monotonic() - self._began, 3),
                    )
                )
                await self._journal.finish()
                return
        except BaseException:
            self._journal.close()
            raise
        self._journal.close()


def _created(row: LoopRow) -> JobCreated:
    plan = plan_from_json(row.plan)
    return JobCreated(
        job_id=row.record_run_id,
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
    """Return the number of the last event in a journal."""
    try:
        numbers = [getattr(record.event, "number", 0) for record in read(directory)]
    except RecordError:
        return 0
    return max(numbers, default=0)
