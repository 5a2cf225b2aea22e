"""Models of the API's requests and responses, from which its OpenAPI description is made. Times are in UTC."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ringfence.fleet.store.job import Job
from ringfence.job.changes import ChangesState
from ringfence.job.state import JobState


class Answer(BaseModel):
    """A response. Later versions may add fields."""

    model_config = ConfigDict(frozen=True)


class JobAnswer(Answer):
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


class AttemptAnswer(Answer):
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


class LimitAnswer(Answer):
    """A limit of a job, and how much of it is used."""

    name: str
    """`tokens`, `cost_usd`, `turns`, `tool_calls`, or `wall_clock_s`, which counts for each attempt by itself."""
    used: float | None
    """None: not known."""
    allowed: float | None
    """None: no limit."""


class JobDetail(JobAnswer):
    """A job with its texts, its attempts, and its limits against what it used."""

    prompt: str | None
    answer: str | None
    attempts: list[AttemptAnswer]
    limits: list[LimitAnswer]
    changes_state: ChangesState
    """What has become of its last attempt's changes; `unknown` also where they are on another machine."""
    can_apply: bool
    """Whether its changes can be applied on the machine that answers."""


def job_answer(job: Job, waits_for: str | None) -> JobAnswer:
    """Return the response for a job, with the reason why it waits, if it does."""
    known = {name: getattr(job, name) for name in JobAnswer.model_fields if name != "waits_for"}
    return JobAnswer(**known, waits_for=waits_for)


def counts_of_agent(counts: Mapping[JobState, int]) -> dict[str, Any]:
    """Return how many jobs of an agent wait, run and have ended, and how they ended."""
    outcomes = {state: count for state, count in counts.items() if state.is_terminal}
    return {
        "queued": counts.get(JobState.QUEUED, 0),
        "active": counts.get(JobState.STARTING, 0) + counts.get(JobState.RUNNING, 0),
        "ended": sum(outcomes.values()),
        "outcomes": outcomes,
    }


def text_of(content: bytes | None) -> str | None:
    """Decode a stored text."""
    return None if content is None else content.decode("utf-8", "replace")


class TriggerAnswer(Answer):
    """What creates jobs of an agent, besides its schedules."""

    name: str
    type: str
    when: str


class ScheduleAnswer(Answer):
    """A schedule of an agent."""

    agent: str
    name: str
    when: str
    next_at: datetime | None
    """None: it is paused or disabled, or never due again."""
    last_at: datetime | None
    """The last due time that was handled."""
    is_paused: bool
    is_enabled: bool
    """False: its configuration, or that of its agent, disables it."""


class BudgetAnswer(Answer):
    """What was spent of a day's budget."""

    tokens: int
    cost_usd: float
    max_tokens: int | None
    """None: no limit."""
    max_cost_usd: float | None


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
    """How many jobs ended in each state, of those that are kept."""
    waits_for: str | None
    """Why its queued jobs do not start."""
    triggers: list[TriggerAnswer]
    last_job: JobAnswer | None
    succeeded_today: int
    """Jobs that ended today as `succeeded`, `unverified` or `ended`."""
    failed_today: int
    """Jobs that ended today in any other way, except cancelled ones."""
    today: BudgetAnswer
    next_at: datetime | None
    """When the first of its schedules is due next."""


class ConfiguredValue(Answer):
    """A value of an agent's configuration, with secrets left out."""

    key: str
    value: Any
    origin: str
    """FILE:LINE:COLUMN, or `default`."""


class AgentDetail(AgentAnswer):
    """An agent with its configuration."""

    configuration: list[ConfiguredValue]
    """Every value that is not a default."""
    schedules: list[ScheduleAnswer]


class MachineAnswer(Answer):
    """A machine on which workers live."""

    host: str
    workers: int
    capacity: int
    """Jobs at once."""
    active: int
    """Jobs that run there now."""
    is_draining: bool
    """Whether no worker there takes more jobs."""


class StatusAnswer(Answer):
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
    machines: list[MachineAnswer]
    agents: int
    queued: int
    active: int
    """Jobs that a worker has taken; without a live worker they continue once one is there."""
    unreadable: int
    """Jobs in the database that this version cannot read; they are left alone."""
    waits_for: str | None
    """Why no queued job starts, where that is not the matter of one agent."""
    succeeded_today: int
    failed_today: int
    today: BudgetAnswer
    next_schedules: list[ScheduleAnswer]
    """The next three to be due."""
    inbox: int
    """Questions that wait for a person."""


class SpendAnswer(Answer):
    """What an agent spent on a day."""

    day: date
    agent: str
    tokens: int
    cost_usd: float


class SpendReport(Answer):
    """What agents spent, by day, and the budgets of a day."""

    timezone: str
    """The days begin at midnight there."""
    days: list[date]
    """The oldest first."""
    spend: list[SpendAnswer]
    """Only days and agents with any."""
    total: BudgetAnswer
    """Of all agents, today."""
    budgets: dict[str, BudgetAnswer]
    """Of each configured agent, today."""


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


class InboxAnswer(Answer):
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


class AnswerRequest(BaseModel):
    """An answer to a question."""

    model_config = ConfigDict(extra="forbid")

    answer: Literal["allow", "deny"]
    scope: Literal["run", "agent"] = "run"
    """What the rule is granted for: the job that asked, or all later jobs of its agent, too."""
    reply: Annotated[str, Field(max_length=20_000)] = ""
    """A message to the agent; required to `allow` a question of the agent's own."""
    rule: dict[str, Any] | None = None
    """The rule that the person saw; if the question requests another one, the answer is refused with 409."""


class GrantAnswer(Answer):
    """A rule that an agent was granted for all its jobs."""

    id: str
    agent: str
    kind: str
    rule: dict[str, Any]
    granted_by: str
    granted_at: datetime


class TriggerRequest(BaseModel):
    """A job that a person starts."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Two requests with the same key create one job."""


class RepeatRequest(BaseModel):
    """A job that is run again, or continued."""

    model_config = ConfigDict(extra="forbid")

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    """None: the same task."""


class SubmittedAnswer(Answer):
    """A new job, or the one that a request with the same key created."""

    job: JobAnswer
    is_new: bool


class ForgottenAnswer(Answer):
    """What was removed of jobs that had ended, or would be."""

    jobs: list[str]
    runs: int
    size_bytes: int
    """Of their records."""
    is_all: bool
    """False: there is more, for the next call."""


class Problem(Answer):
    """Why a request is refused."""

    message: str
    exit_code: int
    """The exit code of a command that sent the request."""


class Refusal(Answer):
    """The response to a request that is refused."""

    error: Problem
