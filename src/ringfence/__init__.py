"""Ringfence runs AI coding agents in a sandbox, and keeps a signed record of what they did.

What a program uses is in `__all__`; the modules beside it are internal and change without notice, except for
`ringfence.errors`, `ringfence.events`, `ringfence.integrations`, `ringfence.loop.story`, `ringfence.runtime`,
`ringfence.testing` and `ringfence.tool`, which say themselves what is public.

A command in a sandbox::

    async with Sandbox.open(SandboxSpec(workspace=Path.cwd())) as sandbox:
        result = await sandbox.run(["make", "test"], timeout_s=600)

The same without `async`::

    with open_sandbox(SandboxSpec(workspace=Path.cwd())) as sandbox:
        result = sandbox.run(["make", "test"], timeout_s=600)

An agent on a task, checked and recorded as by `ringfence run`::

    result = await run_agent("Fix the failing tests", agent="claude", verify="make test")
"""

TYPE_CHECKING = False  # to import `typing` takes half as long as to start Python
if TYPE_CHECKING:
    from typing import Any

    from ringfence.errors import RingfenceError
    from ringfence.job.interface import run_agent, run_agent_sync
    from ringfence.job.outcome import RunResult
    from ringfence.runtime import Limits
    from ringfence.sandbox import (
        BlockingSandbox,
        Changes,
        ExecResult,
        Mount,
        Sandbox,
        SandboxProcess,
        SandboxSpec,
        open_sandbox,
    )

__version__ = "0.2.0"
__all__ = [
    "BlockingSandbox",
    "Changes",
    "ExecResult",
    "Limits",
    "Mount",
    "RingfenceError",
    "RunResult",
    "Sandbox",
    "SandboxProcess",
    "SandboxSpec",
    "__version__",
    "open_sandbox",
    "run_agent",
    "run_agent_sync",
]

_MODULES = {
    "BlockingSandbox": "ringfence.sandbox",
    "Changes": "ringfence.sandbox",
    "ExecResult": "ringfence.sandbox",
    "Limits": "ringfence.runtime",
    "Mount": "ringfence.sandbox",
    "RingfenceError": "ringfence.errors",
    "RunResult": "ringfence.job.outcome",
    "Sandbox": "ringfence.sandbox",
    "SandboxProcess": "ringfence.sandbox",
    "SandboxSpec": "ringfence.sandbox",
    "open_sandbox": "ringfence.sandbox",
    "run_agent": "ringfence.job.interface",
    "run_agent_sync": "ringfence.job.interface",
}


def __getattr__(name: str) -> "Any":
    """Public names, imported on first use: `ringfence --help` must not pay for them."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'ringfence' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, so that `help` and completion show them."""
    return sorted({*globals(), *__all__})
