"""What a run is asked to do: everything resolved, nothing to look up.

What only types name is not imported: a command in a sandbox has no agent.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.job.outcome import Outcome
from ringfence.job.state import NO_CHECK
from ringfence.sandbox import Sandbox, SandboxSpec

if TYPE_CHECKING:
    from ringfence.job.model_access import ModelAccess
    from ringfence.sandbox.pool.pool import PoolSize
    from ringfence.secret import KnownSecret, Lease

Purpose = Literal["agent", "exec", "shell", "terminal", "standing"]
Emit = Callable[[Event], Awaitable[None]]
Part = Callable[[Sandbox, Emit], Awaitable[Outcome]]
"""What is done in the run's first sandbox: an agent's work, a command, a person's shell, a client on a person's
terminal, or serving others."""


@frozen
class RunRequest:
    """One run in a fence, whatever is done inside."""

    prompt: str
    """The task, or the command."""
    workspace: Path
    spec: SandboxSpec
    """`workspace` and `mode` in it are the user's; the run prepares the placement."""
    purpose: Purpose = "agent"
    wall_clock_s: float | None = None
    """Of the part inside and the check; the work is brought out in any case."""
    wait_s: float = 0.0
    """How long it waits for another run to leave the workspace."""
    on_wait: Callable[[str], None] | None = None
    """Told once, when it begins to wait, who is in the way."""
    verify: str | None = None
    """Shell command that decides the outcome, in a new sandbox; `NO_CHECK`: none is wanted."""
    require_verified: bool = False
    loosenings: Sequence[tuple[str, str]] = ()
    """(what, by whom): weaker than the default, asked for by name."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values taken out of everything that is written or shown, besides those of `leases`."""
    leases: "Sequence[Lease]" = ()
    """Secrets lent to the run. They are given back at its end, before the record is closed."""
    injected: "Sequence[Lease]" = ()
    """Those of them that are put inside, a loosening: the agent can read them and take them along."""
    wanted: "Sequence[KnownSecret]" = ()
    """Secrets that a standing sandbox's holder takes leases of by itself, as we are gone before it is."""
    precheck: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Done while the sandbox is made ready; what it raises ends the run before an agent is set to work."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The effective configuration, for the record."""
    protect: Sequence[str] = ()
    """Further path patterns that may not be written."""
    pool: "PoolSize | None" = None
    """Take the first sandbox from the pool, if it has one, and keep so many there."""
    model: str = ""
    runtime: str = ""
    toolset: str = ""
    model_access: "ModelAccess | None" = None
    """What the gateway gives to those inside, where `spec.egress` grants the model."""
    continues: str | None = None
    """Run that is gone on with."""
    session_id: str | None = None

    @property
    def check(self) -> str | None:
        """The command of the check; None if there is none."""
        return None if self.verify == NO_CHECK else self.verify
