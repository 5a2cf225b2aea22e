"""What `fleet:` and `agents:` can say, as frozen models. An agent has the sections of a run's configuration besides."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from ringfence.config.model import Settings
from ringfence.config.units import ByteCount, Seconds
from ringfence.config.values import Count, PositiveNumber, Text, absolute_path, no_boolean

NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?")
"""Of agents, fleets, schedules and triggers."""


def _name(name: Any) -> Any:
    if isinstance(name, str) and not NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a valid name; {NAME_ADVICE}")
    return name


NAME_ADVICE = "write up to 40 small letters, digits, '-' and '_'"
AgentName = Annotated[str, BeforeValidator(_name), StringConstraints(pattern=f"^{NAME.pattern}$")]
QualifiedName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9_-]+(?:\.[a-z0-9_-]+){0,8}$", max_length=200)
]
TriggerName = AgentName
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
WorkerLabel = Annotated[str, StringConstraints(pattern=f"^{_LABEL.pattern}$")]
HookPoint = Literal[
    "before_run", "after_run", "on_success", "on_failure", "on_limit", "on_cancel", "on_waiting"
]
Priority = Annotated[int, BeforeValidator(no_boolean), Field(ge=-1000, le=1000)]


def is_worker_label(text: str) -> bool:
    """Whether a text can be the label of a worker, or the name of a machine."""
    return _LABEL.fullmatch(text) is not None


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BudgetSettings(_Section):
    """What may be spent in a day, which begins at midnight in the fleet's time zone."""

    tokens: Count | None = None
    """Tokens, cached ones included. null: no bound."""
    cost_usd: PositiveNumber | None = None
    """US dollars; needs known prices. null: no bound."""


class RateSettings(_Section):
    """How often jobs may start."""

    count: Count
    """So many starts."""
    per: Seconds
    """In any stretch of so long."""


def _plain_url(url: str) -> str:
    """A repository's address, if it is none that has git run a command.

    Raises:
        ValueError: It is one.
    """
    if url.startswith("-") or _HELPER.match(url):
        raise ValueError(
            f"{url[:100]!r} is no address of a repository; write https://, ssh://, HOST:PATH or a path"
        )
    return url


def _listening(address: Any) -> Any:
    if not isinstance(address, str):
        return address
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS and int(port) <= _LAST_PORT):
        raise ValueError(f"{address[:80]!r} has no port; write HOST:PORT with a port up to {_LAST_PORT}")
    if not host:
        raise ValueError(f"{address[:80]!r} has no host; write HOST:PORT, such as 127.0.0.1:{port}")
    return address


_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_LAST_PORT = 65535
_PORT_DIGITS = 5


class RepositorySettings(_Section):
    """A git repository that each agent works on in a clone of its own."""

    url: Annotated[Text, AfterValidator(_plain_url)]
    """As `git clone` takes it: https, ssh, or a path."""
    ref: Text | None = None
    """Branch, tag or commit. null: what the repository calls its head."""
    depth: Annotated[int, BeforeValidator(no_boolean), Field(ge=0)] = 1
    """Commits of history that are fetched. 0: all."""


class SessionSettings(_Section):
    """Whether a job goes on with the agent's last conversation."""

    policy: Literal["fresh", "resume", "always"] = "fresh"
    """`fresh`: each job begins anew; `resume`: it goes on with the last session if that was used lately (`within`) and
    fits; `always`: it goes on however old that is."""
    within: Seconds = 86400.0
    """How old the last use may be, for `resume`."""


class RetrySettings(_Section):
    """Which jobs are tried again, and when."""

    on: tuple[
        Literal["infrastructure", "interrupted", "sandbox_start", "failed", "check_red", "timed_out"], ...
    ] = (
        "infrastructure",
        "interrupted",
        "sandbox_start",
    )
    """Ends after which a job is tried again. An agent's own failure is none unless you name it."""
    attempts: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=20)] = 3
    """Tries in all."""
    backoff: Seconds = 30.0
    """Before the second try; doubled before each further one."""
    most_backoff: Seconds = 3600.0
    """Never longer."""


class ScheduleSettings(_Section):
    """When an agent works by itself: `every` or `cron`."""

    every: Seconds | None = None
    """Each time so much has passed."""
    cron: Text | None = None
    """Five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    timezone: Text | None = None
    """IANA name, such as Europe/Berlin. null: the fleet's."""
    prompt: Text | None = None
    """The task; null: the agent's."""
    catch_up: Literal["skip", "once", "all"] = "once"
    """What happens to times that passed while nobody was there."""
    overlap: Literal["skip", "queue", "replace"] = "skip"
    """What happens if the last job of this schedule still goes on."""
    priority: Priority | None = None
    """Of its jobs; null: the agent's."""
    is_enabled: Annotated[bool, Field(alias="enabled")] = True
    """Whether it fires."""

    @model_validator(mode="after")
    def _one_of(self) -> "ScheduleSettings":
        if (self.every is None) == (self.cron is None):
            raise ValueError("a schedule has either `every` or `cron`; give one of the two")
        if self.timezone is not None and self.cron is None:
            raise ValueError("`timezone` has no effect without `cron`; drop it")
        return self


class _Trigger(_Section):
    prompt: Text | None = None
    """The task; null: the agent's. `{{ payload.… }}` stands for what came with the trigger."""
    overlap: Literal["skip", "queue", "replace"] = "queue"
    """What happens if the last job of this trigger still goes on."""
    priority: Priority | None = None
    """Of its jobs; null: the agent's."""


class WebhookTrigger(_Trigger):
    """A request to `/hooks/AGENT/NAME` at the fleet's webhook address."""

    type: Literal["webhook"]
    secret: Text
    """Signs the requests: `${secret:NAME}`."""
    signature: Literal["github", "stripe"] = "github"
    """`github`: X-Hub-Signature-256; `stripe`: a time and v1 signature, checked against replays."""


class FilesTrigger(_Trigger):
    """A change of files."""

    type: Literal["files"]
    paths: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Patterns as in .gitignore, below the workspace."""
    settle: Seconds = 2.0
    """How long nothing may change before the job is made."""


class AfterTrigger(_Trigger):
    """The end of another agent's job."""

    type: Literal["after"]
    agent: QualifiedName
    """Whose."""
    states: tuple[Text, ...] = ("succeeded", "unverified")
    """Which ends."""


class DirectoryTrigger(_Trigger):
    """A directory of task files, one job each."""

    type: Literal["directory"]
    path: Annotated[Path, AfterValidator(absolute_path)]
    """Where it is; relative to the file that says so."""
    every: Seconds = 5.0
    """How often it is looked at."""


class GithubTrigger(_Trigger):
    """Issues with a label, one job each."""

    type: Literal["github"]
    repository: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
    """OWNER/NAME."""
    token: Text
    """`${secret:NAME}`."""
    label: Text = "ready"
    """Issues with this label are taken."""
    claimed_label: Text = "agent-working"
    """And have this one while they are worked on."""
    base_url: Text = "https://api.github.com"
    """Of the interface; another for GitHub Enterprise Server."""
    every: Seconds = 60.0
    """How often it is looked at."""


Trigger = Annotated[
    WebhookTrigger | FilesTrigger | AfterTrigger | DirectoryTrigger | GithubTrigger,
    Field(discriminator="type"),
]


class CommandHook(_Section):
    """A shell command, run inside a sandbox of its own on the agent's workspace; the job's facts are on its stdin."""

    type: Literal["command"]
    command: Text
    """For `/bin/sh -c`."""
    timeout: Seconds = 60.0
    """How long it may take."""
    is_required: Annotated[bool, Field(alias="required")] = False
    """Whether a job whose `before_run` hook fails is not begun."""
    where: Literal["sandbox", "host"] = "sandbox"
    """`host` runs it as you, with your files and no more variables than PATH, HOME and the like; needs `unsafe:
    [host_hooks]`."""


def _of_the_web(url: str) -> str:
    """An address that requests can be sent to. No complaint shows it: it may be a secret."""
    if not url.startswith(("http://", "https://", "${secret:")):
        raise ValueError("this is no address of a service; write http:// or https://, HOST and the path")
    return url


class WebhookHook(_Section):
    """A request that tells of the job."""

    type: Literal["webhook", "slack", "discord"]
    """`webhook` sends the facts as JSON; the others a message in the form that their incoming webhooks take."""
    url: Annotated[Text, AfterValidator(_of_the_web)]
    """May hold `${secret:NAME}`."""
    secret: Text | None = None
    """Signs it: X-Ringfence-Signature-256. `${secret:NAME}`."""
    headers: dict[Text, Text] = Field(default_factory=dict)
    """Sent besides; values may hold `${secret:NAME}`."""
    timeout: Seconds = 10.0
    """How long an answer may take."""
    attempts: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=20)] = 5
    """Tries in all, ever longer apart."""


Hook = Annotated[CommandHook | WebhookHook, Field(discriminator="type")]


class AgentSettings(Settings):
    """An agent of the fleet: all that a run can be told, and what is only an agent's."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="agent")

    description: Text | None = None
    """For people."""
    prompt: Text | None = None
    """The task, where a schedule or trigger has none of its own."""
    workspace: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """Where it works; relative to the file that says so. null: the directory of that file."""
    repository: RepositorySettings | None = None
    """Instead of a workspace: a repository, of which the agent has a clone."""
    is_enabled: Annotated[bool, Field(alias="enabled")] = True
    """Whether its jobs start."""
    concurrency: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=64)] = 1
    """Its jobs at once. More than one needs `repository`, or a workspace that is cloned."""
    priority: Priority = 0
    """Of its jobs: higher goes first."""
    queue: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=100_000)] = 1000
    """Its jobs that may wait to start. What would make more of them is refused."""
    rate: RateSettings | None = None
    """How often its jobs may start. null: no bound."""
    placement: WorkerLabel | None = None
    """The label that a worker must have to run its jobs, or the name of a machine. null: any worker."""
    budget: BudgetSettings = BudgetSettings()
    """What it may spend in a day."""
    session: SessionSettings = SessionSettings()
    """Whether a job goes on with the last conversation."""
    retry: RetrySettings = RetrySettings()
    """Which jobs are tried again."""
    schedules: dict[TriggerName, ScheduleSettings] = Field(default_factory=dict)
    """When it works by itself."""
    triggers: dict[TriggerName, Trigger] = Field(default_factory=dict)
    """What else makes jobs."""
    hooks: dict[HookPoint, tuple[Hook, ...]] = Field(default_factory=dict)
    """What is done around a job."""

    @model_validator(mode="after")
    def _one_place(self) -> "AgentSettings":
        if self.workspace is not None and self.repository is not None:
            raise ValueError("an agent has a `workspace` or a `repository`, not both")
        return self


class RetentionSettings(_Section):
    """What is kept of jobs that have ended. Records that are not sealed are always kept."""

    age: Seconds | None = 30 * 86400.0
    """Older jobs are forgotten. null: never."""
    count: Count | None = None
    """So many of each agent are kept. null: all."""
    size: ByteCount | None = None
    """All records together may be so large. null: no bound."""


class RecordSettings(_Section):
    """Where copies of the records of jobs are stored, for machines other than those that made them."""

    url: Text
    """A directory that all machines reach, or an address that fsspec knows, such as `s3://BUCKET/PREFIX` (extra `s3`).
    Credentials come from the environment."""


class ListenSettings(_Section):
    """An address that requests from outside come to."""

    address: Annotated[
        str, BeforeValidator(_listening), StringConstraints(pattern=r"^[A-Za-z0-9.:\[\]-]+:\d{1,5}$")
    ]
    """HOST:PORT."""


LogFormat = Literal["text", "json"]


class TraceSettings(_Section):
    """Where traces of jobs go, by OpenTelemetry's protocol. They need the extra `otel`."""

    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.:\[\]-]+(/[^\s?#@]*)?$")]
    """Base URL of the collector, `http://127.0.0.1:4318`. Its credentials come by OTEL_EXPORTER_OTLP_HEADERS."""
    content: bool = False
    """Whether spans contain the texts of prompts, replies and tool calls."""
    metrics: bool = False
    """Whether metrics of agents, models and tools are sent as well, to /v1/metrics of the collector."""


def _check_postgres_url(url: str) -> str:
    """Check that an address is of Postgres or a variable. Errors do not show it, because it may contain a password."""
    if not re.match(r"postgresql(\+psycopg)?://|\$\{", url):
        raise ValueError("this is not the address of a Postgres server; write postgresql://USER@HOST/NAME")
    return url


class DurableSettings(_Section):
    """The database of work and its progress."""

    type: Literal["sqlite", "postgres"] = "sqlite"
    """`sqlite`: files in the state directory, for one machine. `postgres`: a server that several machines share."""
    url: Annotated[Text, AfterValidator(_check_postgres_url)] | None = None
    """Address of the database for `postgres`: `postgresql://…`. Give a password by `${VARIABLE}` or in ~/.pgpass."""

    @model_validator(mode="after")
    def _check_url(self) -> "DurableSettings":
        if (self.type == "postgres") != (self.url is not None):
            raise ValueError("`url` goes with `type: postgres`, which requires it")
        return self


class FleetSettings(_Section):
    """The fleet as a whole."""

    name: AgentName = "fleet"
    """What it is called, in the engine and in messages."""
    description: Text | None = None
    """For people."""
    workers: Annotated[int, BeforeValidator(no_boolean), Field(ge=0, le=64)] = 1
    """Processes that run jobs on this machine. 0: only others' do."""
    concurrency: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=1024)] = 8
    """Jobs at once."""
    timezone: Text | None = None
    """IANA name, for schedules and budgets. null: the machine's."""
    budget: BudgetSettings = BudgetSettings()
    """What all agents together may spend in a day."""
    engine: DurableSettings = DurableSettings()
    """Where jobs are kept."""
    retention: RetentionSettings = RetentionSettings()
    """What is kept of jobs that have ended."""
    records: RecordSettings | None = None
    """Where copies of the records of jobs are stored. null: records stay on the machine that made them."""
    drain: Seconds = 60.0
    """How long `fleet down` waits for running jobs. Jobs that have not ended by then are queued again."""
    webhooks: ListenSettings | None = None
    """Where webhook triggers listen. null: nowhere."""
    metrics: ListenSettings | None = None
    """Where /metrics, /healthz and /readyz answer besides the socket. null: nowhere."""
    traces: TraceSettings | None = None
    """Where traces of jobs go. null: nowhere."""
    log_format: LogFormat = "text"
    """How the daemon and its workers say what happens: `text` for people, `json` for programs."""


class IncludeSettings(_Section):
    """Another fleet's file, whose agents join this one under its name."""

    file: Text
    """Its path, relative to the file that says so."""
    name: AgentName | None = None
    """What stands before its agents' names. null: what it calls itself."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Laid upon it: sections for all its agents, and `agents:` for single ones."""
