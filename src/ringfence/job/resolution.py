"""Resolves the effective configuration to requests that have nothing left to look up.

Every way to start a run resolves its choices here: the command line, the Python interface, loops and fleets. Modules
of agents and models are imported by the functions that need them: a command in a sandbox has neither.
"""

import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.errors import ConfigurationError, PolicyRefused
from ringfence.job.credentials import one_per_provider, refuse_in_workspace, with_credentials
from ringfence.job.request import AgentRequest, CustomWork, Notify, Purpose, RunRequest
from ringfence.job.sandbox_spec import check_image, spec_of
from ringfence.job.state import NO_CHECK

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.job.model_access import ModelAccess
    from ringfence.job.resumed_run import ResumedRun, ResumeRequest
    from ringfence.model.prices import Price
    from ringfence.runtime.options import Options
    from ringfence.sandbox import SandboxSpec
    from ringfence.sandbox.pool.pool import PoolSize

DEFAULT_MODELS = {"codex-cli": "gpt-6.1-sol"}
"""The default models of runtimes that cannot use the general one; for `codex-cli`, the first of codex 0.169.0."""

_SCHEMA_BYTES = 1024**2


@asynccontextmanager
async def resolved_agent_request(
    prompt: str,
    workspace: Path,
    effective: "Effective",
    *,
    notify: Notify,
    resume: "ResumeRequest | None" = None,
    answer_schema: dict[str, Any] | None = None,
    is_checked: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> AsyncIterator[RunRequest]:
    """Resolve and check the request of an agent's run; its credentials are leased until the context is left.

    Args:
        prompt: The task.
        workspace: Where it works.
        effective: The configuration.
        notify: Called with notes for the user.
        resume: The session to resume, if any.
        answer_schema: The JSON Schema of its last message; ignored by runtimes that do not support one.
        is_checked: Whether the credential was already checked, so that it is not checked again.
        overrides: Fields of the `AgentRequest` that differ from the configuration.

    Raises:
        UsageError: The session to resume does not exist, is in use, or belongs to another workspace or runtime.
        AuthenticationFailed, InfrastructureFault: As `lease_credentials`.
        ConfigurationError, PolicyRefused: As `agent_request` and `check_agent`; a check is required, and there is none.
    """
    import anyio.to_thread

    from ringfence.job.agent import check_agent, with_agent_cli
    from ringfence.job.interrupted_runs import recover_runs
    from ringfence.job.resumed_run import find_resumed, locked_session
    from ringfence.tool.base import UnknownTool

    _check_verification(effective)
    resolved = await anyio.to_thread.run_sync(workspace.resolve)
    spec = spec_of(effective, resolved)
    check_image(spec)
    if resume is not None:
        await recover_runs(notify)
    earlier = await find_resumed(resume, resolved)
    agent = _with_answer_schema(
        answer_schema, replace(agent_request(prompt, effective, earlier), **(overrides or {}))
    )
    access = agent_access(agent, effective.settings)
    try:
        await check_agent(agent, access)
        if access.agent_is_inside:
            agent, spec = await with_agent_cli(agent, spec)
    except UnknownTool as exc:
        raise effective.origins[exc.key].error_about(exc.key, exc.reason) from exc
    configuration = effective.settings.model_dump(mode="json")
    with locked_session(earlier, agent, configuration, resolved) as session:
        request = _agent_run_request(replace(agent, session=session), effective, spec, earlier, access)
        async with with_credentials(request, effective, notify, is_probed=not is_checked) as complete:
            yield complete


def _check_verification(effective: "Effective") -> None:
    """Check that a run that must be verified has a check.

    Raises:
        UsageError, ConfigurationError: It has none; the class depends on the origin of the setting.
    """
    run = effective.settings.run
    if not run.require_verified or run.verify not in (None, NO_CHECK):
        return
    origins = [effective.origins[key] for key in ("run.require_verified", "run.verify")]
    origin = next((each for each in origins if each.kind == "flag"), origins[0])
    raise origin.error(
        "a check must pass (require_verified), but there is none; name its command with --verify, or run.verify in "
        "ringfence.yaml"
    )


def _with_answer_schema(schema: dict[str, Any] | None, agent: AgentRequest) -> AgentRequest:
    """Return the agent with a schema for its answer, if its runtime supports one."""
    from ringfence.runtime.options import SUPPORT

    if schema is None or agent.runtime not in SUPPORT["output_schema"].runtimes:
        return agent
    return replace(agent, options=agent.options.model_copy(update={"output_schema": schema}))


def _agent_run_request(
    agent: AgentRequest,
    effective: "Effective",
    spec: "SandboxSpec",
    earlier: "ResumedRun",
    access: "ModelAccess",
) -> RunRequest:
    settings = effective.settings
    assert spec.workspace is not None
    session_id = None if earlier.is_forked else earlier.session_id
    return RunRequest(
        work=agent,
        workspace=spec.workspace,
        spec=spec,
        wall_clock_s=settings.limits.wall_clock,
        verify=settings.run.verify,
        require_verified=settings.run.require_verified,
        loosenings=effective.loosenings(),
        secrets=secret_values(settings),
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=pool_size(settings),
        model_access=access,
        continues=earlier.run_id,
        asks=settings.ask.about,
        session_id=agent.session.plan.id if agent.session else session_id,
    )


def agent_request(prompt: str, effective: "Effective", earlier: "ResumedRun") -> AgentRequest:
    """Return the agent that the settings describe. A resumed run keeps its runtime unless the settings name one.

    Raises:
        ConfigurationError: A tool cannot be loaded, or the output schema cannot be read.
    """
    from ringfence.runtime.limits import Limits
    from ringfence.tool.base import McpServer
    from ringfence.tool.function import import_tool

    settings = effective.settings
    limits, model = settings.limits, settings.run.model
    runtime: str = settings.run.runtime
    if earlier.created is not None and not is_set(effective, "run.runtime"):
        runtime = earlier.created.runtime
    if not is_set(effective, "run.model"):
        model = DEFAULT_MODELS.get(runtime, model)
    try:
        options = options_of(settings)
    except ConfigurationError as exc:
        raise effective.origins["run.output_schema"].error_about("run.output_schema", exc.message) from exc
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
        toolset=settings.run.toolset if is_set(effective, "run.toolset") else None,
        options=_without_cli_settings(options, effective) if runtime == "api" else options,
        functions=[import_tool(reference) for reference in settings.tools.python],
        mcp_servers=[McpServer(name=one.name, command=one.command) for one in settings.tools.mcp],
        conversation=earlier.conversation,
        asks="question" in settings.ask.about,
    )


def _without_cli_settings(options: "Options", effective: "Effective") -> "Options":
    """Return the options without the settings of agent CLIs that come from files, because this run has no agent CLI."""
    from ringfence.runtime.options import SUPPORT, Options

    unused = [
        name
        for name, option in SUPPORT.items()
        if option.setting.startswith("client.") and effective.origins[option.setting].kind != "flag"
    ]
    return options.model_copy(update={name: Options.model_fields[name].default for name in unused})


def is_set(effective: "Effective", key: str) -> bool:
    """Whether a setting was given, even if it equals the default."""
    return effective.origins[key].kind != "default"


def options_of(settings: "Settings") -> "Options":
    """Return the agent's options from the settings.

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
        tools_permitted=settings.tools.permit,
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
    """Read the JSON Schema in a file.

    Raises:
        ConfigurationError: It cannot be read, or is not a JSON Schema.
    """
    import json

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


def command_request(
    command: tuple[str, ...],
    workspace: Path,
    effective: "Effective",
    *,
    purpose: Purpose,
    wait_s: float = 0.0,
    continues: str | None = None,
) -> RunRequest:
    """Return the request of a command's run. The caller adds the function that runs it and leases the credentials.

    Args:
        command: Program and arguments.
        workspace: Where it runs.
        effective: The settings.
        purpose: The purpose of its sandbox.
        wait_s: How long it waits for a workspace that another run holds.
        continues: A run on a private copy, whose changes the command's own copy begins with.

    Raises:
        PolicyRefused: Credentials would be injected into a standing sandbox, or into its requests.
        ConfigurationError, UsageError: As `spec_of` and `check_image`.
    """
    if purpose == "standing" and effective.settings.auth == "inject":
        raise PolicyRefused(
            "auth: inject is for single runs: a standing sandbox would hold your credentials until it is removed",
            rule="auth-inject-standing",
        )
    if purpose == "standing" and effective.settings.egress.swap:
        raise PolicyRefused(
            "egress.swap is for single runs: a standing sandbox holds no lease of its secrets; remove the setting",
            rule="egress-swap-standing",
        )
    place = workspace.resolve()
    settings = effective.settings
    spec = spec_of(effective, place)
    check_image(spec)
    return RunRequest(
        work=CustomWork(shlex.join(command), runtime=purpose),
        workspace=place,
        spec=spec,
        purpose=purpose,
        wait_s=wait_s,
        wall_clock_s=settings.limits.wall_clock if purpose == "exec" else None,
        loosenings=effective.loosenings(),
        secrets=secret_values(settings),
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=None if purpose == "standing" else pool_size(settings),
        model_access=access_of(settings) if spec.egress.wants_model else None,
        continues=continues,
    )


async def standing_request(name: str, workspace: Path, effective: "Effective", notify: Notify) -> RunRequest:
    """The request of a standing sandbox. Its supervisor, which outlives this process, leases credentials itself.

    Raises:
        AuthenticationFailed: Models may be requested inside, but there is no credential.
        ConfigurationError, PolicyRefused, UsageError: As `command_request`.
    """
    from ringfence.config.paths import state_dir
    from ringfence.secret import known_secrets, revoke_abandoned

    request = command_request((name,), workspace, effective, purpose="standing")
    access = request.model_access
    is_paid = access is not None and access.needs_credential
    wanted = one_per_provider(known_secrets(effective.settings.secrets)) if is_paid else []
    for secret in wanted:
        refuse_in_workspace(request.workspace, secret)
    await revoke_abandoned(state_dir(), notify)
    return replace(request, wanted=wanted)


def access_of(settings: "Settings") -> "ModelAccess":
    """Return the access to models that the settings grant a run."""
    from ringfence.egress.gateway.policy import ModelPolicy
    from ringfence.job.model_access import ModelAccess

    return ModelAccess(
        settings.run.model,
        tokens=settings.limits.tokens,
        cost_usd=settings.limits.cost_usd,
        prices=prices_of(settings),
        policy=ModelPolicy(settings.egress.models, frozenset(settings.egress.provider_tools)),
    )


def agent_access(agent: AgentRequest, settings: "Settings") -> "ModelAccess":
    """Return the access to models that an agent has.

    Raises:
        UsageError: The runtime is unknown.
    """
    from ringfence.runtime.registry import provider_of, runs_agent_cli

    return replace(
        access_of(settings),
        model=agent.model,
        turns=agent.limits.turns,
        provider=provider_of(agent.runtime),
        agent_is_inside=runs_agent_cli(agent.runtime),
    )


def prices_of(settings: "Settings") -> "dict[str, Price]":
    """Prices that the settings give."""
    from ringfence.model.prices import Price

    return {name: Price(**price.model_dump()) for name, price in settings.prices.items()}


def pool_size(settings: "Settings") -> "PoolSize | None":
    """Return the size of the pool of warm sandboxes; None if there is no pool."""
    pool = settings.pool
    if not pool.size:
        return None
    from ringfence.sandbox.pool.pool import PoolSize

    return PoolSize(pool.size, pool.max_age)


def secret_values(settings: "Settings") -> tuple[str, ...]:
    """Return the values that must not be recorded: the user's secrets, and those in the sandbox's environment."""
    import os

    from ringfence.secret import environment_secrets, registered_secrets

    named = (os.environ.get(reference.env or "", "") for reference in settings.secrets.values())
    return (
        *environment_secrets({**os.environ, **settings.sandbox.env}),
        *(value for value in named if value),
        *registered_secrets(),
    )
