"""A whole run of an agent from Python: what `ringfence run` does, without its settings and its terminal."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from ringfence.errors import UsageError
from ringfence.job.agent import access_for, check_agent, run_agent
from ringfence.job.agent_request import AgentRequest
from ringfence.job.clients import with_client
from ringfence.job.recorder import View
from ringfence.job.request import RunRequest
from ringfence.job.result import JobResult
from ringfence.job.run import JobRun
from ringfence.sandbox import SandboxSpec
from ringfence.secret import Credential


async def run_task(
    agent: AgentRequest,
    workspace: Path | str,
    *,
    spec: SandboxSpec | None = None,
    credentials: Sequence[Credential] = (),
    verify: str | None = None,
    view: View | None = None,
) -> JobResult:
    """Let an agent work in a sandbox of its own, check what it did, and keep the record.

    Args:
        agent: Who works, on what. Its program, if it is one, is looked for; `model_access` is made.
        workspace: Where it works.
        spec: What its sandbox is like; its workspace is `workspace`.
        credentials: The one for its model. They stay outside. None for a scripted model.
        verify: Shell command that decides the outcome, in a new sandbox.
        view: Is shown each event after it was written.

    Raises:
        UsageError, ConfigurationError, PolicyRefused, AuthenticationFailed: Before anything was made. What goes wrong
            later is the result's state.
    """
    if verify is not None and not verify.strip():
        raise UsageError(
            f"verify={verify!r} is empty; give the command that checks the work, or None for no check"
        )
    place = await anyio.to_thread.run_sync(Path(workspace).resolve)
    spec = (spec or SandboxSpec()).model_copy(update={"workspace": place})
    await check_agent(agent)
    if agent.runtime != "api":
        agent, spec = await with_client(agent, spec)
    agent = replace(agent, model_access=await access_for(agent, credentials=credentials))
    run = RunRequest(
        prompt=agent.prompt,
        workspace=place,
        spec=spec,
        wall_clock_s=agent.limits.wall_clock_s,
        verify=verify,
        secrets=[credential.value for credential in credentials],
        model=agent.model,
        runtime=agent.runtime,
        toolset=agent.toolset or "",
        model_access=agent.model_access if spec.egress.wants_model else None,
    )
    return await JobRun(run, partial(run_agent, agent), view=view).run()
