"""Submits the jobs of many schedules' due times in one transaction; separate statements for each would be too slow."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select

from ringfence.fleet.store.insertion import PreparedJob, QueueFull, insert_prepared_in, prepare_job
from ringfence.fleet.store.job import Job, NewJob, job_of
from ringfence.fleet.store.schedules import mark_handled_in
from ringfence.fleet.store.tables import JOBS
from ringfence.fleet.submission import Overlap, Submission, cancel_replaced_in
from ringfence.job.state import JobState

_SAME_KEY = select(JOBS).where(JOBS.c.dedupe_key.in_(bindparam("keys", expanding=True)))
_LIVE = select(JOBS).where(
    JOBS.c.agent.in_(bindparam("agents", expanding=True)),
    JOBS.c.trigger == "schedule",
    JOBS.c.state.in_([state.value for state in JobState if not state.is_terminal]),
)
_QUEUED = (
    select(JOBS.c.agent, func.count())
    .where(JOBS.c.agent.in_(bindparam("agents", expanding=True)), JOBS.c.state == JobState.QUEUED.value)
    .group_by(JOBS.c.agent)
)


@dataclass(frozen=True)
class DueJobs:
    """The jobs of one schedule that are due."""

    agent: str
    schedule: str
    handled: datetime
    """The time up to which the schedule is handled once they are submitted."""
    jobs: tuple[NewJob, ...]
    """One for each due time, the oldest first."""
    overlap: Overlap


def fire_in(connection: Connection, due: Sequence[DueJobs]) -> list[list[Submission] | Exception]:
    """Submit due jobs, as `submit_in` would one after another, and record how far their schedules are handled.

    If a job cannot be submitted, nothing is done for its schedule; the result holds the exception in its place.

    Raises:
        DuplicateKey: Another process has just submitted one of the jobs.
    """
    batch = _DueBatch(connection, due)
    results = [batch.enter(each) for each in due]
    insert_prepared_in(connection, batch.prepared)
    for result in results:
        for entered in result if isinstance(result, list) else ():
            cancel_replaced_in(connection, entered)
    done = (each for each, result in zip(due, results, strict=True) if not isinstance(result, Exception))
    mark_handled_in(connection, [(each.agent, each.schedule, each.handled) for each in done])
    return results


class _DueBatch:
    """The database's jobs that matter here, updated as jobs are added that are not inserted yet."""

    def __init__(self, connection: Connection, due: Sequence[DueJobs]) -> None:
        agents = {"agents": sorted({each.agent for each in due})}
        keys = [new.dedupe_key for each in due for new in each.jobs]
        self.prepared: list[PreparedJob] = []
        known = connection.execute(_SAME_KEY, {"keys": keys}).mappings()
        self._duplicates = {row["dedupe_key"]: job_of(row) for row in known}
        self._queued: dict[str, int] = {}
        for agent, queued in connection.execute(_QUEUED, agents):
            self._queued[agent] = queued
        self._live: dict[tuple[str, str], tuple[Job, ...]] = {}
        if any(each.overlap != "queue" for each in due):
            for job in map(job_of, connection.execute(_LIVE, agents).mappings()):
                key = (job.agent, job.trigger_name)
                self._live[key] = (*self._live.get(key, ()), job)

    def enter(self, due_jobs: DueJobs) -> list[Submission] | Exception:
        try:
            return self._submit(due_jobs)
        except QueueFull as exc:
            return exc

    def _submit(self, due_jobs: DueJobs) -> list[Submission]:
        key = (due_jobs.agent, due_jobs.schedule)
        live, queued = self._live.get(key, ()), self._queued.get(due_jobs.agent, 0)
        entered: list[Submission] = []
        new_ones: list[PreparedJob] = []
        for new in due_jobs.jobs:
            others = () if due_jobs.overlap == "queue" else live
            if others and due_jobs.overlap == "skip":
                why = f"job {others[0].id} of the same {new.trigger} has not ended"
                entered.append(Submission(None, is_new=False, reason=why))
                continue
            known = self._duplicates.get(new.dedupe_key or "")
            if known is not None:
                entered.append(Submission(known, is_new=False))
                continue
            # A job that replaces others does not make the queue longer.
            if not others and new.most_queued is not None and queued >= new.most_queued:
                raise QueueFull(new.agent, new.most_queued)
            prepared = prepare_job(new)
            new_ones.append(prepared)
            entered.append(Submission(prepared.job, is_new=True, replaced=others))
            live, queued = (*live, prepared.job), queued + 1
        self.prepared += new_ones
        self._live[key], self._queued[due_jobs.agent] = live, queued
        return entered
