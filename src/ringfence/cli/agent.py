"""What an agent's run is asked, by the settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.request import AgentRequest, RunRequest
    from ringfence.model.price_table import Price
    from ringfence.sandbox import SandboxSpec
    from ringfence.secret import Credential


async def agent_run(
    prompt: str, workspace: Path, effective: "Effective", *, go_on: bool
) -> "tuple[RunRequest, AgentRequest]":
    """A run of an agent and what the agent itself needs, checked.

    Raises:
        UsageError: `go_on`, and there is nothing to go on with.
        AuthenticationFailed, ConfigurationError, PolicyRefused: As `agent_request` and `check_agent`.
    """
    from dataclasses import replace

    import anyio.to_thread

    from ringfence.cli.running import close_the_dead
    from ringfence.cli.settings import check_image, pool_of, secrets_of, spec_of
    from ringfence.job.agent import access_for, check_agent
    from ringfence.job.continuing import Continuation, last_run_of
    from ringfence.job.request import RunRequest

    settings = effective.settings
    place = await anyio.to_thread.run_sync(workspace.resolve)
    spec = spec_of(effective, place)
    check_image(spec)
    earlier = Continuation()
    if go_on:
        await close_the_dead()
        earlier = last_run_of(place)
    agent = agent_request(prompt, settings, conversation=earlier.conversation)
    await check_agent(agent)
    access = await access_for(agent, others=other_credentials(agent, spec))
    agent = replace(agent, model_access=access)
    secrets = [*secrets_of(settings), *(each.value for each in access.credentials)]
    run = RunRequest(
        prompt=prompt,
        workspace=place,
        spec=spec,
        wall_clock_s=settings.limits.wall_clock,
        verify=settings.run.verify,
        require_verified=settings.run.require_verified,
        loosenings=effective.loosenings(),
        secrets=secrets,
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=pool_of(settings),
        model=agent.model,
        runtime=agent.runtime,
        toolset=agent.toolset,
        model_access=access if spec.egress.wants_model else None,
        continues=earlier.run_id,
        session_id=earlier.session_id,
    )
    return run, agent


def other_credentials(agent: "AgentRequest", spec: "SandboxSpec") -> "list[Credential]":
    """Credentials besides the agent's own, where those inside may ask models too."""
    from ringfence.job.model_access import found_credentials

    if not spec.egress.wants_model or agent.credential is None:
        return []
    return [each for each in found_credentials() if each.provider != agent.credential.provider]


def access_of(settings: "Settings", spec: "SandboxSpec") -> "ModelAccess | None":
    """What those inside may ask of models; None where that is not granted.

    Raises:
        AuthenticationFailed: It is granted, and there is no credential.
        ConfigurationError: The model's script cannot be read.
    """
    from ringfence.job.model_access import ModelAccess, found_credentials
    from ringfence.model.registry import needs_credential, read_model

    if not spec.egress.wants_model:
        return None
    model = settings.run.model
    _, prices = read_model(model)
    return ModelAccess(
        model,
        credentials=found_credentials() if needs_credential(model) else (),
        tokens=settings.limits.tokens,
        cost_usd=settings.limits.cost_usd,
        prices={**prices, **prices_of(settings)},
    )


def prices_of(settings: "Settings") -> "dict[str, Price]":
    """Prices that the settings give."""
    from ringfence.model.price_table import Price

    return {name: Price(**price.model_dump()) for name, price in settings.prices.items()}


def agent_request(
    prompt: str,
    settings: "Settings",
    *,
    conversation: tuple[dict[str, Any], ...] = (),
    with_credential: bool = True,
) -> "AgentRequest":
    """What an agent needs, by the settings.

    Raises:
        AuthenticationFailed: The model needs a credential and there is none.
        ConfigurationError: A tool cannot be loaded.
    """
    from ringfence.job.request import AgentRequest
    from ringfence.model.registry import needs_credential
    from ringfence.runtime.limits import Limits
    from ringfence.secret import resolve_credential
    from ringfence.tool.mcp_server import McpServer
    from ringfence.tool.python_function import import_tool

    limits = settings.limits
    needs_one = with_credential and needs_credential(settings.run.model)
    return AgentRequest(
        prompt=prompt,
        model=settings.run.model,
        limits=Limits(
            turns=limits.turns,
            tool_calls=limits.tool_calls,
            tokens=limits.tokens,
            cost_usd=limits.cost_usd,
            wall_clock_s=limits.wall_clock,
        ),
        toolset=settings.run.toolset,
        system_append=settings.run.system_append,
        prices=prices_of(settings),
        functions=[import_tool(reference) for reference in settings.tools.python],
        mcp_servers=[McpServer(name=one.name, command=one.command) for one in settings.tools.mcp],
        credential=resolve_credential() if needs_one else None,
        conversation=conversation,
    )
