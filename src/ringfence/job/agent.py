"""The agent's part of a run: its model, its tools, its loop."""

from ringfence.errors import UsageError
from ringfence.job.outcome import Outcome, outcome_of_agent
from ringfence.job.request import AgentRequest
from ringfence.model.registry import OpenedModel, known_model, open_model
from ringfence.runtime.api import ApiRuntime
from ringfence.runtime.base import Emit, Task
from ringfence.runtime.prompts import system_prompt
from ringfence.sandbox import Sandbox
from ringfence.tool.toolset import open_toolset


async def check_agent(request: AgentRequest) -> None:
    """See that the agent can be had, before anything is made for it.

    Raises:
        UsageError: The runtime is unknown, or what its tools need is not installed.
        ConfigurationError: The model's script cannot be read.
        PolicyRefused: A limit on cost, and the price of the model is not known.
    """
    if request.runtime != "api":
        raise UsageError(f"unknown runtime {request.runtime!r}; known: api")
    if request.mcp_servers:
        import ringfence.tool.mcp  # noqa: F401 -- says what to install
    name, prices = await known_model(request.model)
    request.limits.check_price(name, {**prices, **request.prices})


async def run_agent(request: AgentRequest, sandbox: Sandbox, emit: Emit) -> Outcome:
    """Let the agent work until it ends by itself, and say what that means.

    Raises:
        LimitReached, AuthenticationFailed, InfrastructureFault, SandboxDied: As the runtime's contract.
    """
    async with (
        open_model(request.model, credential=request.credential) as opened,
        open_toolset(
            request.toolset, sandbox=sandbox, functions=request.functions, mcp_servers=request.mcp_servers
        ) as toolset,
    ):
        runtime = ApiRuntime(
            model=opened.model,
            toolset=toolset,
            limits=request.limits,
            prices={**opened.prices, **request.prices},
        )
        result = await runtime.run(_task(request, opened), sandbox, emit)
    return outcome_of_agent(result.ended_by)


def _task(request: AgentRequest, opened: OpenedModel) -> Task:
    system = None
    if request.system_append:
        system = f"{system_prompt(request.toolset)}\n\n{request.system_append}"
    return Task(
        prompt=request.prompt,
        model=opened.name,
        system=system,
        toolset=request.toolset,
        conversation=request.conversation,
    )
