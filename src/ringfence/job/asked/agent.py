"""What an agent's run is asked, by the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.egress.gateway.policy import ModelPolicy
    from ringfence.job.agent_request import AgentRequest
    from ringfence.job.asked.lending import Lent, Tell
    from ringfence.job.asked.session import GoingOn
    from ringfence.job.continuing import Continuation
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.request import RunRequest
    from ringfence.model.price_table import Price
    from ringfence.runtime.options import Options
    from ringfence.sandbox import SandboxSpec


DEFAULT_MODELS = {"codex-cli": "gpt-6.1-sol"}
"""Of runtimes that cannot ask the usual one. Of `codex-cli`: the first in the catalogue of codex 0.169.0."""

_SCHEMA_BYTES = 1024**2


@asynccontextmanager
async def agent_run(
    prompt: str,
    workspace: Path,
    effective: "Effective",
    *,
    go_on: "GoingOn | None",
    tell: "Tell",
    answer_schema: dict[str, Any] | None = None,
    is_checked: bool = False,
) -> "AsyncIterator[tuple[RunRequest, AgentRequest]]":
    """A run of an agent and what the agent itself needs, checked; with the secrets it is lent.

    Args:
        prompt: The task.
        workspace: Where it works.
        effective: The configuration.
        go_on: What it goes on with, if it does.
        tell: Is told what a person should know.
        answer_schema: The JSON Schema of its last word; a runtime that cannot hold it to one is not asked to.
        is_checked: Whether its credential was asked about before, and is not again.

    Raises:
        UsageError: What it is to go on with is not there, is in use, or is another workspace's or runtime's.
        AuthenticationFailed, InfrastructureFault: As `lent_to_run`.
        ConfigurationError, PolicyRefused: As `agent_request` and `check_agent`; a check is required, and there is none.
    """
    import anyio.to_thread

    from ringfence.job.agent import access_for, check_agent
    from ringfence.job.asked.lending import lent_to_run
    from ringfence.job.asked.sandbox import check_image, spec_of
    from ringfence.job.asked.session import earlier_of, held
    from ringfence.job.clients import provider_of, with_client
    from ringfence.model.registry import needs_credential

    _check_verification(effective)
    place = await anyio.to_thread.run_sync(workspace.resolve)
    spec = spec_of(effective, place)
    check_image(spec)
    earlier = await earlier_of(go_on, place, tell)
    agent = _answering_by(answer_schema, agent_request(prompt, effective, earlier))
    await check_agent(agent)
    is_client = agent.runtime != "api"
    if is_client:
        agent, spec = await with_client(agent, spec)
    is_asked = needs_credential(agent.model)
    provider = provider_of(agent.runtime) if is_asked else None
    others = is_asked and spec.egress.wants_model and not is_client
    with held(earlier, agent, effective.settings, place) as session:
        async with lent_to_run(effective, place, model=provider, others=others, tell=tell) as lent:
            access = await access_for(agent, credentials=lent.credentials, renewals=lent.renewals)
            agent = replace(agent, model_access=access, session=session)
            request = _run_request(agent, effective, spec, earlier, lent)
            yield replace(request, precheck=None) if is_checked else request, agent


def _check_verification(effective: "Effective") -> None:
    """See that a check that is required is there.

    Raises:
        UsageError, ConfigurationError: It is not; by where that was asked for.
    """
    from ringfence.job.state import NO_CHECK

    run = effective.settings.run
    if not run.require_verified or run.verify not in (None, NO_CHECK):
        return
    places = [effective.origins[key] for key in ("run.require_verified", "run.verify")]
    place = next((each for each in places if each.kind == "flag"), places[0])
    raise place.error(
        "a check must pass (require_verified), and there is none; name its command with --verify, or run.verify in "
        "ringfence.yaml"
    )


def _answering_by(schema: dict[str, Any] | None, agent: "AgentRequest") -> "AgentRequest":
    """The same agent, held to a schema if its runtime can do that."""
    from ringfence.runtime.options import SUPPORT

    if schema is None or agent.runtime not in SUPPORT["output_schema"]:
        return agent
    return replace(agent, options=agent.options.model_copy(update={"output_schema": schema}))


def _run_request(
    agent: "AgentRequest", effective: "Effective", spec: "SandboxSpec", earlier: "Continuation", lent: "Lent"
) -> "RunRequest":
    from ringfence.job.asked.sandbox import pool_of, secrets_of
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
        toolset=agent.toolset or (settings.run.toolset if agent.runtime == "api" else ""),
        model_access=agent.model_access if spec.egress.wants_model else None,
        continues=earlier.run_id,
        session_id=agent.session.plan.id
        if agent.session
        else None
        if earlier.is_forked
        else earlier.session_id,
    )


def access_of(settings: "Settings", spec: "SandboxSpec", lent: "Lent") -> "ModelAccess | None":
    """What those inside may ask of models; None where that is not granted.

    Raises:
        ConfigurationError: The model's script cannot be read.
        UsageError: A base URL is none.
    """
    if not spec.egress.wants_model:
        return None
    from ringfence.job.model_access import ModelAccess
    from ringfence.model.registry import read_model

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


def agent_request(prompt: str, effective: "Effective", earlier: "Continuation") -> "AgentRequest":
    """What an agent needs, by the settings, but for its credential. Who is not told otherwise goes on as he began.

    Raises:
        ConfigurationError: A tool cannot be loaded, or the output schema cannot be read.
    """
    from ringfence.job.agent_request import AgentRequest
    from ringfence.runtime.limits import Limits
    from ringfence.tool.mcp_server import McpServer
    from ringfence.tool.python_function import import_tool

    settings = effective.settings
    limits, model = settings.limits, settings.run.model
    runtime: str = settings.run.runtime
    if earlier.created is not None and not is_said(effective, "run.runtime"):
        runtime = earlier.created.runtime
    if not is_said(effective, "run.model"):
        model = DEFAULT_MODELS.get(runtime, model)
    options = options_of(settings)
    return AgentRequest(
        prompt=prompt,
        model=model,
        runtime=runtime,
        limits=Limits(
            turns=limits.turns,
            tool_calls=limits.tool_calls,
            tokens=limits.tokens,
            cost_usd=limits.cost_usd,
            wall_clock_s=limits.wall_clock,
        ),
        toolset=settings.run.toolset if is_said(effective, "run.toolset") else None,
        options=without_client(options, effective) if runtime == "api" else options,
        prices=prices_of(settings),
        model_policy=policy_of(settings),
        functions=[import_tool(reference) for reference in settings.tools.python],
        mcp_servers=[McpServer(name=one.name, command=one.command) for one in settings.tools.mcp],
        conversation=earlier.conversation,
    )


def without_client(options: "Options", effective: "Effective") -> "Options":
    """The same without what files say of clients, as this run has none; what was typed for this run stays."""
    from ringfence.runtime.options import SETTING_OF, Options

    idle = [
        name
        for name, key in SETTING_OF.items()
        if key.startswith("client.") and effective.origins[key].kind != "flag"
    ]
    return options.model_copy(update={name: Options.model_fields[name].default for name in idle})


def is_said(effective: "Effective", key: str) -> bool:
    """Whether somebody gave a setting, be it its default."""
    return effective.origins[key].kind != "default"


def options_of(settings: "Settings") -> "Options":
    """How the agent is to work, by the settings.

    Raises:
        ConfigurationError: The output schema cannot be read.
    """
    from ringfence.runtime.options import Options

    client, schema = settings.client, settings.run.output_schema
    return Options(
        system_prompt=settings.run.system_prompt,
        system_append=settings.run.system_append,
        tools_allowed=settings.tools.allow,
        tools_denied=settings.tools.deny,
        permission_mode=client.permission_mode,
        plugins=client.plugins,
        settings_sources=client.settings_sources,
        output_schema=read_schema(schema) if schema is not None else None,
        cli_path=client.path,
        cli_args=client.args,
        idle_timeout_s=client.idle_timeout,
        force=client.force,
    )


def read_schema(file: Path) -> dict[str, Any]:
    """The JSON Schema in a file.

    Raises:
        ConfigurationError: It cannot be read, or holds none.
    """
    import json

    from ringfence.errors import ConfigurationError

    try:
        with file.open("rb") as stream:
            schema = json.loads(stream.read(_SCHEMA_BYTES + 1))
    except (OSError, ValueError, RecursionError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise ConfigurationError(
            f"the output schema {str(file)!r} cannot be read: {reason}; name a file with a JSON Schema"
        ) from exc
    if not isinstance(schema, dict):
        raise ConfigurationError(
            f"the output schema {str(file)!r} is no JSON object; name a file with a JSON Schema"
        )
    return schema
