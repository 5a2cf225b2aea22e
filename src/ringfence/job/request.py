"""Defines the request of a run: one value that holds everything the run needs, with nothing left to look up.

Types of agents and models are imported for annotations only, because a command in a sandbox needs neither.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ringfence.config.names import QuestionKind
from ringfence.events import Emit, QuestionAnswered
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome
from ringfence.job.state import NO_CHECK
from ringfence.sandbox import Sandbox, SandboxSpec

if TYPE_CHECKING:
    from ringfence.job.model_access import ModelAccess
    from ringfence.runtime.agent_cli.base import Program
    from ringfence.runtime.limits import Limits
    from ringfence.runtime.options import Options
    from ringfence.runtime.session import RunSession
    from ringfence.sandbox.pool.pool import PoolSize
    from ringfence.secret import KnownSecret, Lease
    from ringfence.tool.base import McpServer, Tool

Purpose = Literal["agent", "exec", "shell", "terminal", "standing"]
Work = Callable[[Sandbox, Emit], Awaitable[Outcome]]
"""Does the work of a run in its first sandbox."""
Notify = Callable[[str], None]
"""Shows one line to the user."""
_TOOLSET = "coder"


def _limits() -> "Limits":
    from ringfence.runtime.limits import Limits

    return Limits()


def _options() -> "Options":
    from ringfence.runtime.options import Options

    return Options()


@frozen
class AgentRequest:
    """Everything that an agent of Ringfence needs besides its sandbox."""

    prompt: str
    model: str
    """Name of a model, or `scripted:FILE`."""
    limits: "Limits" = field(default_factory=_limits)
    runtime: str = "api"
    toolset: str | None = None
    """The toolset; None: `coder`, if the runtime has toolsets."""
    options: "Options" = field(default_factory=_options)
    program: "Program | None" = None
    """The agent CLI, for runtimes that have one."""
    session: "RunSession | None" = None
    """The session of an agent CLI, locked for this run; None: the session is not saved."""
    functions: "Sequence[Tool]" = ()
    sdk_options: Any = None
    """A `ClaudeAgentOptions`, for the runtime `claude-sdk`: hooks and permissions that this process decides."""
    mcp_servers: "Sequence[McpServer]" = ()
    conversation: tuple[dict[str, Any], ...] = ()
    """Earlier messages, for the runtime `api`."""
    asks: bool = False
    """Whether the agent has the tool `ask_person`, for the runtime `api`."""

    @property
    def toolset_used(self) -> str:
        """The name of its toolset; empty for an agent CLI, which has its own tools."""
        from ringfence.runtime.registry import runs_agent_cli

        return "" if runs_agent_cli(self.runtime) else self.toolset or _TOOLSET


@frozen
class CustomWork:
    """Work that is not done by an agent of Ringfence: a command, a shell, a session on a terminal, a program's agent."""

    prompt: str
    """The command or task, for the record."""
    run: Work | None = None
    """The function; None in a request that is not complete yet."""
    runtime: str = ""
    """Name of the worker for the record, such as `exec`. A program's agent has no name."""


@frozen
class RunRequest:
    """One run in a sandbox, of any kind."""

    work: AgentRequest | CustomWork
    workspace: Path
    spec: SandboxSpec
    """`workspace` and `mode` in it are the user's; the run prepares the placement."""
    purpose: Purpose = "agent"
    wall_clock_s: float | None = None
    """Time limit for the work and the check, from the start of the sandbox; the work is delivered in any case."""
    wait_s: float = 0.0
    """How long the run waits for another run to release the workspace."""
    on_wait: Notify | None = None
    """Called once when the run begins to wait, with the reason."""
    verify: str | None = None
    """Shell command that decides the outcome, in a new sandbox; `NO_CHECK`: no check is wanted."""
    require_verified: bool = False
    keeps_work: bool = True
    """Whether changes made inside are kept and compared. False for runs of which only the answer or exit code matters;
    not possible in mode `bind` or with a check."""
    finds_changed_files: bool = False
    """Whether the files of the workspace that were changed are named (`JobRun.changed_files`), although none is kept."""
    loosenings: Sequence[tuple[str, str]] = ()
    """Settings that are weaker than the default, as pairs of a sentence and its origin."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values that are redacted everywhere, besides those of `leases`."""
    leases: "Sequence[Lease]" = ()
    """Secrets leased to the run. It releases them at its end, before the record is sealed."""
    injected: "Sequence[Lease]" = ()
    """The leases whose secrets are injected into the sandbox, a loosening: the agent can read and copy them."""
    wanted: "Sequence[KnownSecret]" = ()
    """Secrets that the supervisor of a standing sandbox leases itself, because it outlives this process."""
    credential_probe: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Runs while the sandbox is prepared; an exception ends the run before the work begins."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The effective configuration, for the record."""
    protect: Sequence[str] = ()
    """Further path patterns that may not be written."""
    pool: "PoolSize | None" = None
    """The size of the pool from which the first sandbox is taken, if it has one ready."""
    model_access: "ModelAccess | None" = None
    """Access to models, for the agent and, if `spec.egress` grants it, for all processes inside. None: no access."""
    continues: str | None = None
    """The run that this one resumes."""
    asks: Sequence[QuestionKind] = ()
    """The kinds of refusals that end the run with a question."""
    answers: Sequence[QuestionAnswered] = ()
    """Answers of a person to questions of earlier runs, which apply to this run."""
    session_id: str | None = None

    @property
    def agent(self) -> AgentRequest | None:
        """The agent of Ringfence that works, if one does."""
        return self.work if isinstance(self.work, AgentRequest) else None

    def running(self, run: Work) -> "RunRequest":
        """The request with the function that does its work."""
        assert isinstance(self.work, CustomWork)
        return replace(self, work=replace(self.work, run=run))

    @property
    def check(self) -> str | None:
        """The command of the check; None if there is none."""
        return None if self.verify == NO_CHECK else self.verify

    @property
    def secret_values(self) -> list[str]:
        """All values that are redacted."""
        return [*self.secrets, *(value for lease in self.leases for value in lease.values)]
