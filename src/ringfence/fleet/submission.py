"""Submits jobs that a person, a schedule, a webhook, a change of files or another job's end requests."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, func, select

from ringfence.errors import UsageError
from ringfence.fleet.config.definition import Agent
from ringfence.fleet.prompt_template import PromptTemplate
from ringfence.fleet.store.database import Database
from ringfence.fleet.store.deliveries import add_delivery_in, find_delivery_in
from ringfence.fleet.store.insertion import DuplicateKey, insert_in
from ringfence.fleet.store.job import Job, NewJob, TriggerKind, job_of
from ringfence.fleet.store.jobs import Jobs, cancel_in, get_in
from ringfence.fleet.store.tables import JOBS
from ringfence.job.state import JobState

Overlap = Literal["skip", "queue", "replace"]
_LIVE = select(JOBS).where(
    JOBS.c.agent == bindparam("of"),
    JOBS.c.trigger == bindparam("by"),
    JOBS.c.trigger_name == bindparam("called"),
    JOBS.c.state.in_([state.value for state in JobState if not state.is_terminal]),
)


@dataclass(frozen=True)
class JobRequest:
    """A requested job."""

    agent: Agent
    trigger: TriggerKind
    name: str = ""
    """The name of the schedule or trigger."""
    prompt: str | None = None
    """The task; None: the agent's own."""
    dedupe_key: str | None = None
    priority: int | None = None
    """None: the agent's."""
    payload: Any = None
    """Data from the trigger, as JSON values."""
    overlap: Overlap = "queue"
    """What happens if a job of the same schedule or trigger has not ended."""
    parent: str | None = None
    session_id: str | None = None
    not_before: datetime | None = None


@dataclass(frozen=True)
class Submission:
    """The result of a request for a job."""

    job: Job | None
    """The new job, or the existing one if it was requested before; None if it was skipped."""
    is_new: bool
    replaced: tuple[Job, ...] = ()
    """Jobs that the new one replaces; their cancellation is requested."""
    reason: str = ""
    """Why it was skipped."""


def new_job(request: JobRequest) -> NewJob:
    """Return the job to store for a request.

    Raises:
        UsageError: There is no task.
    """
    settings = request.agent.settings
    prompt = request.prompt if request.prompt is not None else settings.prompt
    if not prompt or not prompt.strip():
        raise UsageError(
            f"agent {request.agent.name!r} has no prompt of its own, and none was given; write `prompt:` for it, or "
            "give one by --prompt"
        )
    return NewJob(
        agent=request.agent.name,
        trigger=request.trigger,
        trigger_name=request.name,
        prompt=prompt,
        title=None if request.payload is None else _title(prompt, request.payload),
        dedupe_key=request.dedupe_key,
        priority=settings.priority if request.priority is None else request.priority,
        workspace=workspace_of(request.agent),
        placement=settings.placement or "",
        not_before=request.not_before,
        parent=request.parent,
        session_id=request.session_id,
        payload=None if request.payload is None else json.dumps(request.payload),
        configuration=request.agent.configuration,
        most_queued=settings.queue,
    )


def _title(prompt: str, payload: Any) -> str | None:
    """The first line of a prompt with the trigger's data; None if it is no template, which the job will report."""
    try:
        return PromptTemplate(prompt).render_title({"payload": payload})
    except UsageError:
        return None


def workspace_of(agent: Agent) -> str:
    """Return the workspace that only one job at a time may use; empty if each job has its own copy."""
    settings = agent.settings
    if settings.repository is not None or settings.sandbox.mode in ("clone", "read_only"):
        return ""
    return str(settings.workspace)


async def submit(database: Database, request: JobRequest) -> Submission:
    """Submit a job, and apply its overlap setting to unfinished jobs of the same schedule or trigger.

    Raises:
        UsageError: There is no task.
        QueueFull: The agent's queue is full.
    """
    new = new_job(request)
    if new.trigger == "webhook" and new.dedupe_key is not None:
        return await _submit_delivery(database, new, request.overlap)
    if request.overlap == "queue" or not request.name:
        job, is_new = await Jobs(database).add(new)
        return Submission(job, is_new)
    return await database.write(lambda connection: submit_in(connection, new, request.overlap))


async def _submit_delivery(database: Database, new: NewJob, overlap: Overlap) -> Submission:
    """Submit the job of a webhook's delivery, unless the delivery is known: its job may have been removed since."""
    key = new.dedupe_key
    assert key is not None

    def act(connection: Connection) -> Submission:
        known = find_delivery_in(connection, key)
        if known is not None:
            job = get_in(connection, known)
            reason = "" if job is not None else f"this delivery created job {known}, which was removed since"
            return Submission(job, is_new=False, reason=reason)
        entered = submit_in(connection, new, overlap)
        if entered.is_new and entered.job is not None:
            add_delivery_in(connection, key, entered.job.id)
        return entered

    try:
        return await database.write(act)
    except DuplicateKey:  # the same delivery arrived twice at once, and the other one is stored now
        return await database.write(act)


def submit_in(connection: Connection, new: NewJob, overlap: Overlap) -> Submission:
    """Submit a job as `submit` does, within a transaction."""
    if overlap == "queue":
        job, is_new = insert_in(connection, new)
        return Submission(job, is_new)
    parameters = {"of": new.agent, "by": new.trigger, "called": new.trigger_name}
    _lock_trigger(connection, "/".join(parameters.values()))
    others = tuple(map(job_of, connection.execute(_LIVE, parameters).mappings()))
    if others and overlap == "skip":
        return Submission(
            None, is_new=False, reason=f"job {others[0].id} of the same {new.trigger} has not ended"
        )
    # A job that replaces others does not make the queue longer.
    job, is_new = insert_in(connection, replace(new, most_queued=None) if others else new)
    entered = Submission(job, is_new, replaced=others if is_new else ())
    cancel_replaced_in(connection, entered)
    return entered


def _lock_trigger(connection: Connection, trigger: str) -> None:
    """Prevent other processes from entering a job of a trigger until this transaction ends.

    SQLite needs no lock, since it permits only one writer at a time.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(trigger, 0))))


def cancel_replaced_in(connection: Connection, entered: Submission) -> None:
    """Cancel the jobs that a new one replaces, in its transaction; one that has just ended is no error."""
    for other in entered.replaced:
        cancel_in(connection, other.id, reason=f"replaced by job {entered.job.id if entered.job else ''}")


def after_jobs(ended: Job, agents: Mapping[str, Agent]) -> list[JobRequest]:
    """Return the jobs that triggers of other agents request after a job has ended."""
    return [
        JobRequest(
            agent,
            "after",
            name=name,
            prompt=trigger.prompt,
            dedupe_key=f"after/{ended.id}/{agent.name}/{name}",
            priority=trigger.priority,
            payload={
                "job": ended.id,
                "agent": ended.agent,
                "state": ended.state.value,
                "reason": ended.reason,
            },
            parent=ended.id,
        )
        for agent in agents.values()
        if agent.settings.is_enabled
        for name, trigger in agent.settings.triggers.items()
        if trigger.type == "after" and trigger.agent == ended.agent and ended.state.value in trigger.states
    ]


def repeat_request(
    job: Job, agent: Agent, prompt: str, *, kind: Literal["retry", "fork"], payload: bytes | None
) -> JobRequest:
    """Return the request for a job that repeats another one, or continues it.

    Args:
        job: The earlier job.
        agent: The agent of the new job.
        prompt: The task.
        kind: `retry` starts again, `fork` resumes the session.
        payload: The trigger's data for the prompt's placeholders; None if the prompt has none.
    """
    return JobRequest(
        agent,
        kind,
        prompt=prompt,
        parent=job.id,
        priority=job.priority,
        payload=None if payload is None else json.loads(payload),
        session_id=job.run_id if kind == "fork" else None,
    )
