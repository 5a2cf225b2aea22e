"""Whether a loop's roles can work: credentials, programs and fences, before any story is begun; who writes tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio.to_thread

from ringfence.config import Effective
from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.job.agent import check_agent, with_agent_cli
from ringfence.job.credentials import lease_credentials
from ringfence.job.request import AgentRequest
from ringfence.job.resolution import agent_access, agent_request
from ringfence.job.resumed_run import ResumedRun
from ringfence.job.sandbox_spec import spec_of
from ringfence.loop.role.run_settings import effective_for
from ringfence.loop.rows import Spent
from ringfence.loop.settings import LoopSettings, RoleName, RoleSettings
from ringfence.model.probe import credential_check
from ringfence.model.registry import known_model, needs_credential
from ringfence.runtime.registry import provider_of
from ringfence.sandbox import SandboxSpec
from ringfence.secret import Provider, credentials_of, known_secrets

Notify = Callable[[str], None]
_CLIENTS: dict[Provider, str] = {"openai": "codex-cli", "anthropic": "claude-cli"}
_AGENTS_IMAGE = "localhost/ringfence/agents:"


async def check_credentials(
    effective: Effective, settings: LoopSettings, workspace: Path, notify: Notify
) -> None:
    """Ask about each credential that a role of a loop needs, once.

    Args:
        effective: The configuration of its runs.
        settings: Of the loop.
        workspace: Its repository: no secret is read from there.
        notify: Called with what is wrong about where a secret is kept.

    Raises:
        AuthenticationFailed: One is missing, or refused.
        PolicyRefused, InfrastructureFault: As `lease_credentials`.
    """
    by_provider: dict[Provider, Effective] = {}
    for _, each in _players(effective, settings):
        if needs_credential(each.settings.run.model):
            by_provider.setdefault(provider_of(each.settings.run.runtime), each)
    for provider, each in by_provider.items():
        async with lease_credentials(each, workspace, notify=notify, model=provider) as lease:
            await credential_check(lease.credentials[0], each.settings.run.model)()


async def check_players(effective: Effective, settings: LoopSettings, workspace: Path) -> None:
    """See that each role's agent and fence can be had, as far as that can be known without a sandbox.

    Args:
        effective: The configuration of the loop's runs.
        settings: Of the loop.
        workspace: Its repository.

    Raises:
        ConfigurationError: A client's program is not there, or not of a version that was tried; a fence is unknown;
            a model's script cannot be read.
        UsageError: It was an option that named the fence; or a client cannot be started as configured.
        PolicyRefused: As `with_model_granted`.
    """
    seen: list[object] = []
    for role, each in _players(effective, settings):
        own = each.settings
        who = (own.run.runtime, own.run.model, own.sandbox, own.client, own.tools)
        if who in seen:
            continue
        seen.append(who)
        await known_model(own.run.model)
        spec = spec_of(each, workspace)
        if own.run.runtime != "api":
            try:
                await _agent_in(each, spec)
            except ConfigurationError as exc:
                raise ConfigurationError(
                    f"role {role}: {exc}; or have it played by another: --role {role}=RUNTIME"
                ) from exc
            except UsageError as exc:
                raise UsageError(f"role {role}: {exc}") from exc


async def _agent_in(effective: Effective, spec: SandboxSpec) -> AgentRequest:
    agent = agent_request("", effective, ResumedRun())
    await check_agent(agent, agent_access(agent, effective.settings))
    agent, _ = await with_agent_cli(agent, spec)
    return agent


def _players(effective: Effective, settings: LoopSettings) -> Iterator[tuple[RoleName, Effective]]:
    """Everybody who may play a role in a story, on whatever attempt."""
    roles: list[RoleName] = ["test_writer", "implementor", "judge"]
    roles += ["reviewer"] if settings.review else []
    for role in roles:
        for attempt in range(1, max(1, len(settings.role(role).ladder)) + 1):
            yield role, effective_for(effective, settings, role, attempt=attempt, spent=Spent())


async def with_second_writer(
    effective: Effective, settings: LoopSettings, workspace: Path, notify: Notify
) -> LoopSettings:
    """Have another provider's model write the tests, where nobody said who does and both providers can be asked.

    Args:
        effective: The configuration of the loop's runs.
        settings: Of the loop.
        workspace: Its repository.
        notify: Called with one line, if so.

    Raises:
        AuthenticationFailed: The environment holds a credential twice.
    """
    workspace = await anyio.to_thread.run_sync(workspace.resolve)
    run = effective.settings.run
    if settings.roles or not needs_credential(run.model):
        return settings
    secrets, mine = known_secrets(effective.settings.secrets), provider_of(run.runtime)
    other: Provider = "anthropic" if mine == "openai" else "openai"
    if not credentials_of(mine, secrets) or not credentials_of(other, secrets):
        return settings
    role = RoleSettings.model_validate({"runtime": _CLIENTS[other]})
    changed = settings.model_copy(update={"roles": {"test_writer": role}})
    candidate = effective_for(effective, changed, "test_writer", attempt=1, spent=Spent())
    if not await _can_work(candidate, workspace):
        return settings
    writer = candidate.settings.run
    notify(
        f"tests are written by {writer.runtime} ({writer.model}), as there are credentials for "
        f"both providers; --role test_writer={run.runtime} has them written by who writes the code"
    )
    return changed


async def _can_work(effective: Effective, workspace: Path) -> bool:
    """Whether an agent can be had as configured, as far as can be known without a sandbox."""
    try:
        spec = spec_of(effective, workspace)
        agent = await _agent_in(effective, spec)
    except RingfenceError:
        return False
    is_shown = agent.program is not None and agent.program.version is not None
    return is_shown or (spec.image or "").startswith(_AGENTS_IMAGE)
