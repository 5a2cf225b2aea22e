"""What the daemon is asked and answers, as models: they are what OpenAPI describes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ringfence.fleet.store.job import Job
from ringfence.job.state import JobState


class Answer(BaseModel):
    """What the daemon says. It may say more in a later version."""

    model_config = ConfigDict(frozen=True)


class JobAnswer(Answer):
    """A job."""

    id: str
    agent: str
    state: JobState
    trigger: str
    trigger_name: str
    priority: int
    workspace: str
    created_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    worker: str | None
    run_id: str | None
    parent: str | None
    reason: str
    is_cancel_asked: bool
    tokens: int
    cost_usd: float
    waits_for: str | None = None
    """Why it is still queued."""


class JobDetail(JobAnswer):
    """A job with what is stored beside it."""

    prompt: str | None
    answer: str | None


def job_answer(job: Job, waits_for: str | None) -> JobAnswer:
    """A job, and why it waits, if it does."""
    known = {name: getattr(job, name) for name in JobAnswer.model_fields if name != "waits_for"}
    return JobAnswer(**known, waits_for=waits_for)


def counts_of_agent(counts: Mapping[JobState, int]) -> dict[str, Any]:
    """How many jobs of an agent wait, run and have ended, and how they ended."""
    outcomes = {state: count for state, count in counts.items() if state.is_terminal}
    return {
        "queued": counts.get(JobState.QUEUED, 0),
        "active": counts.get(JobState.STARTING, 0) + counts.get(JobState.RUNNING, 0),
        "ended": sum(outcomes.values()),
        "outcomes": outcomes,
    }


def text_of(content: bytes | None) -> str | None:
    """What is stored beside a job, as text."""
    return None if content is None else content.decode("utf-8", "replace")


class TriggerAnswer(Answer):
    """What makes jobs of an agent, besides its schedules."""

    name: str
    type: str
    when: str


class AgentAnswer(Answer):
    """An agent."""

    name: str
    description: str | None
    runtime: str
    model: str
    workspace: str | None
    is_enabled: bool
    queued: int
    active: int
    ended: int
    outcomes: dict[JobState, int]
    """Of those that have ended, how many ended so."""
    waits_for: str | None
    triggers: list[TriggerAnswer]


class ScheduleAnswer(Answer):
    """A schedule of an agent."""

    agent: str
    name: str
    when: str
    next_at: datetime | None
    """None while it is paused."""


class StatusAnswer(Answer):
    """The fleet as a whole."""

    version: str
    fleet: str
    file: str
    pid: int
    started_at: datetime
    is_ready: bool
    workers: list[int]
    agents: int
    queued: int
    active: int
    unreadable: int
    """Jobs in the database that this version cannot read; they are left alone."""


class DownAnswer(Answer):
    """A daemon that is about to end."""

    pid: int


class WorkerAnswer(Answer):
    """A worker: a process that runs jobs."""

    id: str
    host: str
    pid: int
    version: str
    labels: list[str]
    capacity: int
    """Jobs at once."""
    running: int
    """Jobs that it runs now."""
    started_at: datetime
    seen_at: datetime
    is_alive: bool
    is_draining: bool
    """Whether it takes no more jobs."""


class TriggerRequest(BaseModel):
    """A job that is asked for by hand."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Asking twice with one key gives one job."""


class RepeatRequest(BaseModel):
    """A job that is asked for again."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    """None: the same task."""


class EnteredAnswer(Answer):
    """What came of asking for a job."""

    job: JobAnswer
    is_new: bool


class ForgottenAnswer(Answer):
    """What was forgotten of jobs that had ended, or would be."""

    jobs: list[str]
    runs: int
    size_bytes: int
    """Of their records."""
    is_all: bool
    """False: there is more, for the next time."""


class Problem(Answer):
    """Why a request is refused."""

    message: str
    exit_code: int
    """What a command that asked for it ends with."""


class Refusal(Answer):
    """The answer to a request that is refused."""

    error: Problem
