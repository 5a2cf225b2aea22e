"""The models of `fleet:`, `agents:` and `include:`. An agent also has the sections of a run's configuration."""

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
"""The names of agents, fleets, schedules and triggers."""


def _check_name(name: Any) -> Any:
    if isinstance(name, str) and not NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a valid name; {NAME_ADVICE}")
    return name


NAME_ADVICE = "write up to 40 small letters, digits, '-' and '_'"
AgentName = Annotated[str, BeforeValidator(_check_name), StringConstraints(pattern=f"^{NAME.pattern}$")]
QualifiedName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9_-]+(?:\.[a-z0-9_-]+){0,8}$", max_length=200)
]
TriggerName = AgentName
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
WorkerLabel = Annotated[str, StringConstraints(pattern=f"^{_LABEL.pattern}$")]
HookPoint = Literal[
    "before_run", "after_run", "on_success", "on_failure", "on_limit", "on_cancel", "on_waiting", "on_inbox"
]
Priority = Annotated[int, BeforeValidator(no_boolean), Field(ge=-1000, le=1000)]


def is_worker_label(text: str) -> bool:
    """Whether a text can be the label of a worker, or the name of a machine."""
    return _LABEL.fullmatch(text) is not None


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BudgetSettings(_Section):
    """A limit of what may be spent per day. A day begins at midnight in the fleet's time zone."""

    tokens: Count | None = None
    """Tokens, cached ones included. null: no limit."""
    cost_usd: PositiveNumber | None = None
    """US dollars; needs known prices. null: no limit."""


class RateSettings(_Section):
    """How often jobs may start."""

    count: Count
    """The number of starts."""
    per: Seconds
    """The period in which no more jobs start."""


def _check_repository_url(url: str) -> str:
    """Refuse an address for which git would run a command."""
    if url.startswith("-") or _REMOTE_HELPER.match(url):
        raise ValueError(
            f"{url[:100]!r} is not the address of a repository; write https://, ssh://, HOST:PATH or a path"
        )
    return url


def _check_address(address: Any) -> Any:
    if not isinstance(address, str):
        return address
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS and int(port) <= _MAX_PORT):
        raise ValueError(f"{address[:80]!r} has no port; write HOST:PORT with a port up to {_MAX_PORT}")
    if not host:
        raise ValueError(f"{address[:80]!r} has no host; write HOST:PORT, such as 127.0.0.1:{port}")
    return address


_REMOTE_HELPER = re.compile(r"[A-Za-z0-9+.-]*::")
_MAX_PORT = 65535
_PORT_DIGITS = 5


class RepositorySettings(_Section):
    """A git repository; the agent works on a clone of its own."""

    url: Annotated[Text, AfterValidator(_check_repository_url)]
    """An address that `git clone` accepts: https, ssh, or a path."""
    ref: Text | None = None
    """Branch, tag or commit. null: the HEAD of the repository."""
    depth: Annotated[int, BeforeValidator(no_boolean), Field(ge=0)] = 1
    """The number of commits to fetch. 0: all."""


class SessionSettings(_Section):
    """Whether a job resumes the agent's last session."""

    policy: Literal["fresh", "resume", "always"] = "fresh"
    """`fresh`: each job starts a new session; `resume`: it resumes the last session if that fits and was used recently
    (`within`); `always`: it resumes the last session however old that is."""
    within: Seconds = 86400.0
    """The maximum time since the last use, for `resume`."""


class RetrySettings(_Section):
    """Which jobs are retried, and when."""

    on: tuple[
        Literal["infrastructure", "interrupted", "sandbox_start", "failed", "check_red", "timed_out"], ...
    ] = (
        "infrastructure",
        "interrupted",
        "sandbox_start",
    )
    """Ends after which a job is retried. An agent's own failure is not one of them unless you name it."""
    attempts: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=20)] = 3
    """The total number of attempts."""
    backoff: Seconds = 30.0
    """The pause before the second attempt; doubled before each further one."""
    most_backoff: Seconds = 3600.0
    """The longest pause."""


class ScheduleSettings(_Section):
    """When jobs of an agent start by the clock: `every` or `cron`."""

    every: Seconds | None = None
    """The interval. Due times are multiples of it."""
    cron: Text | None = None
    """Five fields, or @hourly, @daily, @weekly, @monthly, @yearly."""
    timezone: Text | None = None
    """IANA name, such as Europe/Berlin. null: the fleet's."""
    prompt: Text | None = None
    """The task; null: the agent's."""
    catch_up: Literal["skip", "once", "all"] = "once"
    """What happens with due times that were missed while no daemon ran."""
    overlap: Literal["skip", "queue", "replace"] = "skip"
    """What happens if the last job of this schedule has not ended."""
    priority: Priority | None = None
    """The priority of its jobs; null: the agent's."""
    is_enabled: Annotated[bool, Field(alias="enabled")] = True
    """Whether it starts jobs."""

    @model_validator(mode="after")
    def _one_of(self) -> "ScheduleSettings":
        if (self.every is None) == (self.cron is None):
            raise ValueError("a schedule has either `every` or `cron`; give one of the two")
        if self.timezone is not None and self.cron is None:
            raise ValueError("`timezone` has no effect without `cron`; drop it")
        return self


class _Trigger(_Section):
    prompt: Text | None = None
    """The task; null: the agent's. `{{ payload.… }}` is replaced by data of the trigger."""
    overlap: Literal["skip", "queue", "replace"] = "queue"
    """What happens if the last job of this trigger has not ended."""
    priority: Priority | None = None
    """The priority of its jobs; null: the agent's."""


class WebhookTrigger(_Trigger):
    """A request to `/hooks/AGENT/NAME` at the fleet's webhook address."""

    type: Literal["webhook"]
    secret: Text
    """The key that signs the requests: `${secret:NAME}`."""
    signature: Literal["github", "stripe"] = "github"
    """`github`: X-Hub-Signature-256; `stripe`: a time and v1 signature, checked against replays."""


class FilesTrigger(_Trigger):
    """A change of files."""

    type: Literal["files"]
    paths: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Patterns as in .gitignore, below the workspace."""
    settle: Seconds = 2.0
    """How long no file may change before the job starts."""


class AfterTrigger(_Trigger):
    """The end of another agent's job."""

    type: Literal["after"]
    agent: QualifiedName
    """The other agent."""
    states: tuple[Text, ...] = ("succeeded", "unverified")
    """The ends that start a job."""


class DirectoryTrigger(_Trigger):
    """A directory of task files; each becomes a job."""

    type: Literal["directory"]
    path: Annotated[Path, AfterValidator(absolute_path)]
    """The directory; relative to this file."""
    every: Seconds = 5.0
    """The polling interval."""


class GithubTrigger(_Trigger):
    """GitHub issues with a label; each becomes a job."""

    type: Literal["github"]
    repository: Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
    """OWNER/NAME."""
    token: Text
    """`${secret:NAME}`."""
    label: Text = "ready"
    """The label of issues that become jobs."""
    claimed_label: Text = "agent-working"
    """The label of issues whose job has not ended."""
    base_url: Text = "https://api.github.com"
    """The address of the API; another for GitHub Enterprise Server."""
    every: Seconds = 60.0
    """The polling interval."""


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
    """The time limit of the command."""
    is_required: Annotated[bool, Field(alias="required")] = False
    """Whether a job does not start if this `before_run` hook fails."""
    where: Literal["sandbox", "host"] = "sandbox"
    """`host` runs it as you, with access to your files and only variables such as PATH and HOME; needs `unsafe:
    [host_hooks]`."""


def _check_web_address(url: str) -> str:
    """Refuse an address that is not an HTTP URL. The error does not quote it, because it may be a secret."""
    if not url.startswith(("http://", "https://", "${secret:")):
        raise ValueError("this is not the address of a service; write http:// or https://, HOST and the path")
    return url


class WebhookHook(_Section):
    """A request with the facts of the job."""

    type: Literal["webhook", "slack", "discord", "ntfy"]
    """`webhook` sends the facts as JSON; the others send a message in the form of their service. For `ntfy`, `url` is
    the address of the topic."""
    url: Annotated[Text, AfterValidator(_check_web_address)]
    """The address; may contain `${secret:NAME}`."""
    secret: Text | None = None
    """The key of the signature X-Ringfence-Signature-256: `${secret:NAME}`."""
    headers: dict[Text, Text] = Field(default_factory=dict)
    """More headers; values may contain `${secret:NAME}`."""
    timeout: Seconds = 10.0
    """The time limit of a response."""
    attempts: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=20)] = 5
    """The total number of attempts, with increasing pauses."""
    click: Annotated[Text, AfterValidator(_check_web_address)] | None = None
    """The address that a tap on the message opens, such as that of the dashboard. Only for `ntfy`."""
    priority: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=5)] | None = None
    """The priority of the message, 1 to 5; null: 4 for questions and failures, else 3. Only for `ntfy`."""

    @model_validator(mode="after")
    def _check_ntfy(self) -> "WebhookHook":
        if self.type != "ntfy" and (self.click is not None or self.priority is not None):
            raise ValueError(f"`click` and `priority` have no effect with `type: {self.type}`; remove them")
        return self


Hook = Annotated[CommandHook | WebhookHook, Field(discriminator="type")]


class AgentSettings(Settings):
    """An agent of the fleet: the settings of its runs, and its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="agent")

    description: Text | None = None
    """A text for people."""
    prompt: Text | None = None
    """The task, if a schedule or trigger has none of its own."""
    workspace: Annotated[Path, AfterValidator(absolute_path)] | None = None
    """The directory it works on; relative to this file. null: the directory of the file."""
    repository: RepositorySettings | None = None
    """A repository to clone, instead of a workspace."""
    is_enabled: Annotated[bool, Field(alias="enabled")] = True
    """Whether its jobs start."""
    concurrency: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=64)] = 1
    """The number of its jobs that may run at the same time. Two need `repository` or `sandbox.mode: clone`."""
    priority: Priority = 0
    """The priority of its jobs; higher numbers start first."""
    queue: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=100_000)] = 1000
    """The number of its jobs that may be queued. More are refused."""
    rate: RateSettings | None = None
    """How often its jobs may start. null: no limit."""
    placement: WorkerLabel | None = None
    """The label that a worker must have to run its jobs, or the name of a machine. null: any worker."""
    budget: BudgetSettings = BudgetSettings()
    """A limit of what it may spend per day."""
    session: SessionSettings = SessionSettings()
    """Whether a job resumes the last session."""
    retry: RetrySettings = RetrySettings()
    """Which jobs are retried."""
    schedules: dict[TriggerName, ScheduleSettings] = Field(default_factory=dict)
    """Jobs that start by the clock."""
    triggers: dict[TriggerName, Trigger] = Field(default_factory=dict)
    """Jobs that start by events."""
    hooks: dict[HookPoint, tuple[Hook, ...]] = Field(default_factory=dict)
    """Commands and messages before and after jobs."""

    @model_validator(mode="after")
    def _one_place(self) -> "AgentSettings":
        if self.workspace is not None and self.repository is not None:
            raise ValueError("an agent has a `workspace` or a `repository`, not both")
        return self


class RetentionSettings(_Section):
    """Which jobs that have ended are kept. Records without a seal are always kept."""

    age: Seconds | None = 30 * 86400.0
    """The age at which jobs are removed. null: never."""
    count: Count | None = None
    """The number of jobs of each agent that are kept. null: all."""
    size: ByteCount | None = None
    """The size limit of all records together. null: no limit."""


class RecordSettings(_Section):
    """Where copies of the records of jobs are stored, for machines other than those that made them."""

    url: Text
    """A directory that all machines reach, or an address that fsspec knows, such as `s3://BUCKET/PREFIX` (extra `s3`).
    Credentials come from the environment."""


class ListenSettings(_Section):
    """An address that accepts requests."""

    address: Annotated[
        str, BeforeValidator(_check_address), StringConstraints(pattern=r"^[A-Za-z0-9.:\[\]-]+:\d{1,5}$")
    ]
    """HOST:PORT."""


class ApiSettings(ListenSettings):
    """An address for the HTTP API, besides the Unix socket. Requests need a token; TLS is left to a reverse proxy."""

    hosts: tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.\[\]:-]{1,253}$")], ...] = ()
    """Further host names that clients may use, such as that of a reverse proxy. Other names are refused."""

    @model_validator(mode="after")
    def _has_name(self) -> "ApiSettings":
        host = self.address.rpartition(":")[0]
        if host in ("0.0.0.0", "[::]") and not self.hosts:  # noqa: S104 -- only compared
            raise ValueError(
                f"`address: {self.address}` has no name that clients can use; list names in `hosts`"
            )
        return self


LogFormat = Literal["text", "json"]


class InboxSettings(_Section):
    """Signed requests to `/hooks/inbox/ID` at the fleet's webhook address that answer questions of jobs."""

    secret: Text
    """The key of their signatures: `${secret:NAME}`, a secret of all agents."""
    signature: Literal["github", "stripe"] = "github"
    """`github`: X-Hub-Signature-256; `stripe`: Stripe-Signature, with a time."""


class TraceSettings(_Section):
    """The collector of traces, which receives OTLP over HTTP. Needs the extra `otel`."""

    endpoint: Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9.:\[\]-]+(/[^\s?#@]*)?$")]
    """Base URL of the collector, as `http://127.0.0.1:4318`. OTEL_EXPORTER_OTLP_HEADERS supplies its credentials."""
    content: bool = False
    """Whether spans contain the texts of prompts, replies and tool calls."""
    metrics: bool = False
    """Whether metrics of agents, models and tools are sent as well, to /v1/metrics of the collector."""


def _check_postgres_url(url: str) -> str:
    """Check that an address is a variable or of Postgres. Errors do not show it, because it may contain a password."""
    if not re.match(r"postgresql(\+psycopg)?://|\$\{", url):
        raise ValueError("this is not the address of a Postgres server; write postgresql://USER@HOST/NAME")
    return url


class DurableSettings(_Section):
    """The database of work and its progress."""

    type: Literal["sqlite", "postgres"] = "sqlite"
    """`sqlite`: files in the state directory, for one machine. `postgres`: a server that several machines share."""
    url: Annotated[Text, AfterValidator(_check_postgres_url)] | None = None
    """Address of the database for `postgres`: `postgresql://…`. Supply a password by `${VARIABLE}` or in ~/.pgpass."""

    @model_validator(mode="after")
    def _check_url(self) -> "DurableSettings":
        if (self.type == "postgres") != (self.url is not None):
            raise ValueError("`url` goes with `type: postgres`, which requires it")
        return self


class FleetSettings(_Section):
    """The fleet as a whole."""

    name: AgentName = "fleet"
    """The name of the fleet, in the database and in messages."""
    description: Text | None = None
    """A text for people."""
    workers: Annotated[int, BeforeValidator(no_boolean), Field(ge=0, le=64)] = 1
    """Worker processes on this machine. 0: jobs run on other machines only."""
    concurrency: Annotated[int, BeforeValidator(no_boolean), Field(ge=1, le=1024)] = 8
    """The number of jobs that may run at the same time."""
    timezone: Text | None = None
    """IANA name, for schedules and budgets. null: the machine's."""
    budget: BudgetSettings = BudgetSettings()
    """A limit of what all agents together may spend per day."""
    engine: DurableSettings = DurableSettings()
    """The database of jobs."""
    retention: RetentionSettings = RetentionSettings()
    """Which jobs that have ended are kept."""
    records: RecordSettings | None = None
    """Where copies of the records of jobs are stored. null: records stay on the machine that made them."""
    drain: Seconds = 60.0
    """How long `fleet down` waits for running jobs. Jobs that have not ended by then are queued again."""
    api: ApiSettings | None = None
    """Where the HTTP API listens besides the Unix socket, for requests with a token. null: nowhere."""
    webhooks: ListenSettings | None = None
    """The address of webhook triggers. null: none."""
    metrics: ListenSettings | None = None
    """The address of /metrics, /healthz and /readyz, besides the socket. null: none."""
    traces: TraceSettings | None = None
    """The collector of traces of jobs. null: none."""
    inbox: InboxSettings | None = None
    """Answers to questions by signed requests. Needs `webhooks`. null: none."""
    notify: tuple[Hook, ...] = ()
    """Hooks for everything that needs a person: questions, blocked and failed jobs, and changes ready to apply. Every
    agent runs them after its own `on_inbox` hooks."""
    log_format: LogFormat = "text"
    """The format of the log of the daemon and its workers: `text` for people, `json` for programs."""

    @model_validator(mode="after")
    def _check_inbox(self) -> "FleetSettings":
        if self.inbox is not None and self.webhooks is None:
            raise ValueError("`inbox` has no effect without `webhooks`; give them an address")
        return self


class IncludeSettings(_Section):
    """Another fleet's file, whose agents join this fleet under its name."""

    file: Text
    """The path of the file, relative to this file."""
    name: AgentName | None = None
    """The prefix of its agents' names. null: the name in the file."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings that override the file: sections for all its agents, and `agents:` for single ones."""
