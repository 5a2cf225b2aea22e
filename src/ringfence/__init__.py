"""Ringfence runs AI coding agents where they can do no harm, and keeps a record that proves what they did.

What a program uses is in `__all__`; the modules beside it are internal and change without notice, except for
`ringfence.errors`, `ringfence.tool`, `ringfence.runtime` and `ringfence.testing`, which say themselves what is public.

A command in a sandbox::

    async with Sandbox.open(SandboxSpec(workspace=Path.cwd())) as sandbox:
        result = await sandbox.run(["make", "test"], timeout_s=600)

The same without `async`::

    with open_sandbox(SandboxSpec(workspace=Path.cwd())) as sandbox:
        result = sandbox.run(["make", "test"], timeout_s=600)

An agent on a task, checked and recorded as by `ringfence run`::

    agent = AgentRequest(prompt="Fix the failing tests", model="claude-sonnet-5-5", runtime="claude-cli")
    result = await run_task(agent, Path.cwd(), verify="make test", credentials=[credential])
"""

TYPE_CHECKING = False  # to import `typing` takes half as long as to start Python
if TYPE_CHECKING:
    from typing import Any

    from ringfence.errors import RingfenceError
    from ringfence.job.agent_request import AgentRequest
    from ringfence.job.result import JobResult
    from ringfence.job.task import run_task
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

__version__ = "0.1.0"
__all__ = [
    "AgentRequest",
    "BlockingSandbox",
    "Changes",
    "ExecResult",
    "JobResult",
    "Limits",
    "Mount",
    "RingfenceError",
    "Sandbox",
    "SandboxProcess",
    "SandboxSpec",
    "__version__",
    "open_sandbox",
    "run_task",
]

_MODULES = {
    "AgentRequest": "ringfence.job.agent_request",
    "BlockingSandbox": "ringfence.sandbox",
    "Changes": "ringfence.sandbox",
    "ExecResult": "ringfence.sandbox",
    "JobResult": "ringfence.job.result",
    "Limits": "ringfence.runtime",
    "Mount": "ringfence.sandbox",
    "RingfenceError": "ringfence.errors",
    "Sandbox": "ringfence.sandbox",
    "SandboxProcess": "ringfence.sandbox",
    "SandboxSpec": "ringfence.sandbox",
    "open_sandbox": "ringfence.sandbox",
    "run_task": "ringfence.job.task",
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
