"""Models of what can be read of a fleet. The API's OpenAPI description is made from them. Times are in UTC."""

from datetime import date, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from ringfence.fleet.store.job import Job
from ringfence.fleet.store.tokens import TokenScope
from ringfence.job.changes import ChangesState
from ringfence.job.state import JobState


class ResponseModel(BaseModel):
    """A response, made from values or from an object with these attributes. Later versions may add fields."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class JobResponse(ResponseModel):
    """A job."""

    id: str
    agent: str
    state: JobState
    title: str
    """The first line of its prompt, at most 200 characters."""
    trigger: str
    """What created it: `manual`, `schedule`, `webhook`, `files`, `after`, `source`, `retry` or `fork`."""
    trigger_name: str
    priority: int
    workspace: str
    placement: str
    """The label that its worker must have; empty: any worker."""
    created_at: datetime
    changed_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    attempt: int
    """The number of its last attempt; 0: none has begun."""
    worker: str | None
    host: str | None
    """The machine of its last attempt."""
    run_id: str | None
    """The run of its last attempt."""
    parent: str | None
    """The job that it repeats, forks or follows."""
    reason: str
    is_cancel_asked: bool
    is_ready_to_apply: bool
    """Whether it left changes in a private copy that were neither applied nor rejected through the fleet."""
    tokens: int
    cost_usd: float
    waits_for: str | None = None
    """Why it has not started, or why nothing works on it."""


class AttemptResponse(ResponseModel):
    """An attempt at a job."""

    number: int
    worker: str
    host: str
    run_id: str
    started_at: datetime
    ended_at: datetime | None
    state: JobState | None
    """None: it has not ended."""
    reason: str
    tokens: int
    cost_usd: float
    has_record: bool
    """Whether its record can be read from the machine that answers."""


class LimitUsage(ResponseModel):
    """A limit of a job, and how much of it is used."""

    name: str
    """`tokens`, `cost_usd`, `turns`, `tool_calls`, or `wall_clock_s`, which counts for each attempt by itself."""
    used: float | None
    """None: not known."""
    allowed: float | None
    """None: no limit."""


class JobDetail(JobResponse):
    """A job with its texts, its attempts, and its limits against what it used."""

    prompt: str | None
    answer: str | None
    attempts: list[AttemptResponse]
    limits: list[LimitUsage]
    changes_state: ChangesState
    """What has become of its last attempt's changes; `unknown` also where they are on another machine."""
    can_apply: bool
    """Whether its changes can be applied on the machine that answers."""


def job_response(job: Job, waits_for: str | None) -> JobResponse:
    """Return the response for a job, with the reason why it waits, if it does."""
    known = {name: getattr(job, name) for name in JobResponse.model_fields if name != "waits_for"}
    return JobResponse(**known, waits_for=waits_for)


class TriggerSummary(ResponseModel):
    """What creates jobs of an agent, besides its schedules."""

    name: str
    type: str
    when: str


class ScheduleResponse(ResponseModel):
    """A schedule of an agent."""

    agent: str
    name: str
    when: str
    next_at: datetime | None
    """None: it is paused or disabled, or never due again."""
    last_at: datetime | None
    """The last due time that was handled. None: none was since the schedule is new or was resumed."""
    is_paused: bool
    is_enabled: bool
    """False: its configuration, or that of its agent, disables it."""


class BudgetUsage(ResponseModel):
    """What was spent of a day's budget."""

    tokens: int
    cost_usd: float
    max_tokens: int | None
    """None: no limit."""
    max_cost_usd: float | None


class AgentResponse(ResponseModel):
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
    """How many jobs ended in each state, of those that are kept."""
    waits_for: str | None
    """Why its queued jobs do not start."""
    triggers: list[TriggerSummary]
    last_job: JobResponse | None
    succeeded_today: int
    """Jobs that ended today as `succeeded`."""
    unverified_today: int
    """Jobs that ended today as `unverified` or `ended`."""
    failed_today: int
    """Jobs that ended today in any other way, except cancelled ones."""
    today: BudgetUsage
    next_at: datetime | None
    """When the first of its schedules is due next."""


class ConfiguredValue(ResponseModel):
    """A value of an agent's configuration, with secrets left out."""

    key: str
    value: Any
    origin: str
    """FILE:LINE:COLUMN, or `default`."""


class AgentDetail(AgentResponse):
    """An agent with its configuration."""

    configuration: list[ConfiguredValue]
    """Every value that is not a default."""
    schedules: list[ScheduleResponse]


class MachineSummary(ResponseModel):
    """A machine on which workers live."""

    host: str
    workers: int
    capacity: int
    """Jobs at once."""
    active: int
    """Jobs that run there now."""
    is_draining: bool
    """Whether no worker there takes more jobs."""


class StatusResponse(ResponseModel):
    """The fleet as a whole."""

    version: str
    fleet: str | None
    """None: there is no fleet, or its configuration cannot be read."""
    file: str | None
    pid: int | None
    """None: no daemon runs."""
    started_at: datetime | None
    is_ready: bool
    workers: list[int]
    """Processes of the workers that the daemon keeps on its own machine."""
    machines: list[MachineSummary]
    agents: int
    queued: int
    active: int
    """Jobs that a worker has taken; without a live worker they continue once one is there."""
    unreadable: int
    """Jobs in the database that this version cannot read; they are left alone."""
    waits_for: str | None
    """Why no queued job starts, where that is not the matter of one agent."""
    succeeded_today: int
    unverified_today: int
    failed_today: int
    today: BudgetUsage
    next_schedules: list[ScheduleResponse]
    """The next three to be due."""
    inbox: int
    """Questions that wait for a person."""


class DailySpend(ResponseModel):
    """What an agent spent on a day."""

    day: date
    agent: str
    tokens: int
    cost_usd: float


class SpendReport(ResponseModel):
    """What agents spent, by day, and the budgets of a day."""

    timezone: str
    """The days begin at midnight there."""
    days: list[date]
    """The oldest first."""
    spend: list[DailySpend]
    """Only days and agents with any."""
    total: BudgetUsage
    """Of all agents, today."""
    budgets: dict[str, BudgetUsage]
    """Of each configured agent, today."""


class DownResponse(ResponseModel):
    """A daemon that is about to end."""

    pid: int


class WorkerResponse(ResponseModel):
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


class InboxResponse(ResponseModel):
    """A question of a job to a person."""

    id: str
    job: str
    agent: str
    attempt: int
    """The attempt that asked."""
    run_id: str
    """The run that asked."""
    kind: str
    """`host`, `tool`, `budget` or `question`."""
    rule: dict[str, Any]
    """The rule that `allow` grants, made from recorded fields; empty for a question of the agent's own."""
    asks: str
    """The request, in Ringfence's words."""
    text: str
    """The agent's own words: data to show, which decide nothing."""
    created_at: datetime
    deadline: datetime | None
    answer: str | None
    """`allow`, `deny`, `expired` or `withdrawn`; None: it is open."""
    scope: str | None
    """`run` or `agent`."""
    reply: str
    answered_by: str | None
    answered_at: datetime | None


class GrantResponse(ResponseModel):
    """A rule that an agent was granted for all its jobs."""

    id: str
    agent: str
    kind: str
    rule: dict[str, Any]
    granted_by: str
    granted_at: datetime


class SubmissionResponse(ResponseModel):
    """A new job, or the one that a request with the same key created."""

    job: JobResponse
    is_new: bool


class RetentionResponse(ResponseModel):
    """What was removed of jobs that had ended, or would be."""

    jobs: list[str]
    runs: int
    size_bytes: int
    """Of their records."""
    is_all: bool
    """False: there is more, for the next call."""


class TokenResponse(ResponseModel):
    """A token, without its secret."""

    name: str
    scope: TokenScope
    created_at: datetime
    expires_at: datetime | None
    """None: never."""
    used_at: datetime | None
    """The last use, to the minute."""
    is_expired: bool


class CreatedToken(ResponseModel):
    """A new token. It is shown only here."""

    name: str
    token: str
