"""What an agent's run is asked, by the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.cli.lending import Lent
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.egress.gateway.policy import ModelPolicy
    from ringfence.job.continuing import Continuation
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.request import AgentRequest, RunRequest
    from ringfence.model.price_table import Price
    from ringfence.sandbox import SandboxSpec
    from ringfence.secret import Provider


@asynccontextmanager
async def agent_run(
    prompt: str, workspace: Path, effective: "Effective", *, go_on: bool
) -> "AsyncIterator[tuple[RunRequest, AgentRequest]]":
    """A run of an agent and what the agent itself needs, checked; with the secrets it is lent.

    Raises:
        UsageError: `go_on`, and there is nothing to go on with.
        AuthenticationFailed, InfrastructureFault: As `lent_to_run`.
        ConfigurationError, PolicyRefused: As `agent_request` and `check_agent`.
    """
    import anyio.to_thread

    from ringfence.cli.lending import lent_to_run
    from ringfence.cli.running import close_the_dead
    from ringfence.cli.settings import check_image, spec_of
    from ringfence.job.agent import access_for, check_agent
    from ringfence.job.continuing import Continuation, last_run_of
    from ringfence.model.registry import needs_credential

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
    is_asked = needs_credential(settings.run.model)
    provider: Provider | None = "anthropic" if is_asked else None
    others = is_asked and spec.egress.wants_model
    async with lent_to_run(effective, place, model=provider, others=others) as lent:
        access = await access_for(agent, credentials=lent.credentials, renewals=lent.renewals)
        agent = replace(agent, model_access=access)
        yield _run_request(agent, effective, spec, earlier, lent), agent


def _run_request(
    agent: "AgentRequest", effective: "Effective", spec: "SandboxSpec", earlier: "Continuation", lent: "Lent"
) -> "RunRequest":
    from ringfence.cli.settings import pool_of, secrets_of
    from ringfence.job.request import RunRequest
    from ringfence.model.probe import checked_before

    settings = effective.settings
    assert spec.workspace is not None
    first = next(iter(lent.credentials), None)
    return RunRequest(
        prompt=agent.prompt,
        workspace=spec.workspace,
        spec=spec,
        wall_clock_s=settings.limits.wall_clock,
        verify=settings.run.verify,
        require_verified=settings.run.require_verified,
        loosenings=effective.loosenings(),
        secrets=secrets_of(settings),
        leases=lent.leases,
        injected=lent.injected,
        precheck=checked_before(first, agent.model) if first is not None else None,
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=pool_of(settings),
        model=agent.model,
        runtime=agent.runtime,
        toolset=agent.toolset,
        model_access=agent.model_access if spec.egress.wants_model else None,
        continues=earlier.run_id,
        session_id=earlier.session_id,
    )


def access_of(settings: "Settings", spec: "SandboxSpec", lent: "Lent") -> "ModelAccess | None":
    """What those inside may ask of models; None where that is not granted.

    Raises:
        ConfigurationError: The model's script cannot be read.
        UsageError: A base URL is none.
    """
    from ringfence.job.model_access import ModelAccess
    from ringfence.model.registry import read_model

    if not spec.egress.wants_model:
        return None
    model = settings.run.model
    _, prices = read_model(model)
    return ModelAccess(
        model,
        credentials=lent.credentials,
        renewals=lent.renewals,
        tokens=settings.limits.tokens,
        cost_usd=settings.limits.cost_usd,
        prices={**prices, **prices_of(settings)},
        policy=policy_of(settings),
    ).checked()


def policy_of(settings: "Settings") -> "ModelPolicy":
    """What may be asked of models, by the settings."""
    from ringfence.egress.gateway.policy import ModelPolicy

    return ModelPolicy(settings.egress.models, frozenset(settings.egress.provider_tools))


def prices_of(settings: "Settings") -> "dict[str, Price]":
    """Prices that the settings give."""
    from ringfence.model.price_table import Price

    return {name: Price(**price.model_dump()) for name, price in settings.prices.items()}


def agent_request(
    prompt: str,
    settings: "Settings",
    *,
    conversation: tuple[dict[str, Any], ...] = (),
) -> "AgentRequest":
    """What an agent needs, by the settings, but for its credential.

    Raises:
        ConfigurationError: A tool cannot be loaded.
    """
    from ringfence.job.request import AgentRequest
    from ringfence.runtime.limits import Limits
    from ringfence.tool.mcp_server import McpServer
    from ringfence.tool.python_function import import_tool

    limits = settings.limits
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
        model_policy=policy_of(settings),
        functions=[import_tool(reference) for reference in settings.tools.python],
        mcp_servers=[McpServer(name=one.name, command=one.command) for one in settings.tools.mcp],
        conversation=conversation,
    )
