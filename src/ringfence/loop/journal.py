"""Records the events of a loop in a journal like a run's, one for each round, which is sealed at the round's end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ringfence import __version__
from ringfence.errors import RecordError
from ringfence.events import AnyEvent, JobCreated, JobEnded, Usage
from ringfence.journal import Journal, find_last_event, read, run_dir, summarize
from ringfence.loop.directory import LoopDirectory
from ringfence.loop.plans import plan_from_json
from ringfence.loop.rows import EventRow, LoopRow
from ringfence.loop.state import EXIT_CODES
from ringfence.loop.store import LoopStore, open_store
from ringfence.tool.text import replace_surrogates


class LoopJournal:
    """The journal of a loop's current round.

    Events are stored as rows first: events that a process which died did not append are appended by the next process.

    Args:
        store: The loop's rows.
    """

    def __init__(self, store: LoopStore) -> None:
        self._store, row = store, store.loop
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
                self.append(event)

    def append(self, event: EventRow) -> None:
        """Append an event that was stored as a row."""
        self._journal.append(_typed(event))

    def close(self) -> None:
        """Close the journal; seal it if the loop has ended."""
        row = self._store.loop
        with self._journal as journal:
            if not row.state.is_end:
                return
            if find_last_event(journal.run_dir, "job.ended") is None:
                journal.append(_ended(row, self._store.spent.cost_usd))
            journal.seal()


@contextmanager
def open_with_record(directory: LoopDirectory) -> Iterator[LoopStore]:
    """Open a loop's rows for changes, as `open_store` does, and seal the record of a loop that has ended.

    The process that stored the end may have died before it sealed the record.
    """
    with open_store(directory) as store:
        _seal_record(store)
        yield store
        _seal_record(store)


def _seal_record(store: LoopStore) -> None:
    """Seal the record of the current round if the loop has ended; a damaged record stays as it is."""
    directory = run_dir(store.loop.record_run_id)
    if store.loop.state.is_end and directory.is_dir() and not summarize(directory).is_sealed:
        with suppress(RecordError):
            LoopJournal(store).close()


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


def _ended(row: LoopRow, cost_usd: float) -> JobEnded:
    return JobEnded(
        state=row.state.value,
        exit_code=EXIT_CODES[row.state],
        reason=row.reason,
        usage=Usage(),
        cost_usd=cost_usd,
        duration_s=((row.ended_ms or row.started_ms) - row.started_ms) / 1000,
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
