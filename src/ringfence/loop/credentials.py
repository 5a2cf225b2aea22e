"""Checks that the credentials, programs and sandboxes of a loop's roles are available, and chooses its test writer."""

from collections.abc import Iterator
from pathlib import Path

import anyio.to_thread

from ringfence.config import Effective
from ringfence.errors import ConfigurationError, RingfenceError, UsageError
from ringfence.job.agent import check_agent, with_agent_cli
from ringfence.job.credentials import lease_credentials
from ringfence.job.request import AgentRequest, Notify
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

_RUNTIMES: dict[Provider, str] = {"openai": "codex-cli", "anthropic": "claude-cli"}
_AGENTS_IMAGE = "localhost/ringfence/agents:"


async def check_credentials(
    effective: Effective, settings: LoopSettings, workspace: Path, notify: Notify
) -> None:
    """Validate each credential that a role of a loop needs with the provider's API, once.

    Args:
        effective: The configuration of the loop's runs.
        settings: The loop's settings.
        workspace: The user's repository: no secret is read from files in it.
        notify: Called with a warning if a secret is stored insecurely.

    Raises:
        AuthenticationFailed: A credential is missing, or the provider rejects it.
        PolicyRefused, InfrastructureFault: As `lease_credentials`.
    """
    by_provider: dict[Provider, Effective] = {}
    for _, each in _role_configurations(effective, settings):
        if needs_credential(each.settings.run.model):
            by_provider.setdefault(provider_of(each.settings.run.runtime), each)
    for provider, each in by_provider.items():
        async with lease_credentials(each, workspace, notify=notify, model=provider) as lease:
            await credential_check(lease.credentials[0], each.settings.run.model)()


async def check_roles(effective: Effective, settings: LoopSettings, workspace: Path) -> None:
    """Check that each role's agent and sandbox are available, as far as that is known without starting a sandbox.

    Args:
        effective: The configuration of the loop's runs.
        settings: The loop's settings.
        workspace: The user's repository.

    Raises:
        ConfigurationError: An agent CLI is missing or its version is not supported; a sandbox backend is unknown; a
            scripted model's file cannot be read.
        UsageError: An option names an unknown sandbox backend, or an agent CLI cannot be started as configured.
        PolicyRefused: As `with_model_granted`.
    """
    checked: list[object] = []
    for role, each in _role_configurations(effective, settings):
        own = each.settings
        configuration = (own.run.runtime, own.run.model, own.sandbox, own.client, own.tools)
        if configuration in checked:
            continue
        checked.append(configuration)
        await known_model(own.run.model)
        spec = spec_of(each, workspace)
        if own.run.runtime != "api":
            try:
                await _agent_with_cli(each, spec)
            except ConfigurationError as exc:
                raise ConfigurationError(
                    f"role {role}: {exc}; or choose another runtime for it: --role {role}=RUNTIME"
                ) from exc
            except UsageError as exc:
                raise UsageError(f"role {role}: {exc}") from exc


async def _agent_with_cli(effective: Effective, spec: SandboxSpec) -> AgentRequest:
    agent = agent_request("", effective, ResumedRun())
    await check_agent(agent, agent_access(agent, effective.settings))
    agent, _ = await with_agent_cli(agent, spec)
    return agent


def _role_configurations(
    effective: Effective, settings: LoopSettings
) -> Iterator[tuple[RoleName, Effective]]:
    """Yield the configuration of each role of a story, for every attempt."""
    roles: list[RoleName] = ["test_writer", "implementor", "judge"]
    roles += ["reviewer"] if settings.review else []
    for role in roles:
        for attempt in range(1, max(1, len(settings.role(role).ladder)) + 1):
            yield role, effective_for(effective, settings, role, attempt=attempt, spent=Spent())


async def with_second_writer(
    effective: Effective, settings: LoopSettings, workspace: Path, notify: Notify
) -> LoopSettings:
    """Return settings in which another provider's model writes the tests, if no role is configured and it can.

    There must be credentials for both providers, and the other provider's agent CLI must be available. Otherwise the
    settings are returned unchanged.

    Args:
        effective: The configuration of the loop's runs.
        settings: The loop's settings.
        workspace: The user's repository.
        notify: Called with one line if the settings were changed.

    Raises:
        AuthenticationFailed: The environment contains two credentials of the same kind.
    """
    workspace = await anyio.to_thread.run_sync(workspace.resolve)
    run = effective.settings.run
    if settings.roles or not needs_credential(run.model):
        return settings
    secrets, own = known_secrets(effective.settings.secrets), provider_of(run.runtime)
    other: Provider = "anthropic" if own == "openai" else "openai"
    if not credentials_of(own, secrets) or not credentials_of(other, secrets):
        return settings
    role = RoleSettings.model_validate({"runtime": _RUNTIMES[other]})
    changed = settings.model_copy(update={"roles": {"test_writer": role}})
    candidate = effective_for(effective, changed, "test_writer", attempt=1, spent=Spent())
    if not await _can_work(candidate, workspace):
        return settings
    writer = candidate.settings.run
    notify(
        f"tests are written by {writer.runtime} ({writer.model}), as there are credentials for "
        f"both providers; --role test_writer={run.runtime} has the agent that writes the code write them, too"
    )
    return changed


async def _can_work(effective: Effective, workspace: Path) -> bool:
    """Whether the configured agent is available, as far as that is known without starting a sandbox."""
    try:
        spec = spec_of(effective, workspace)
        agent = await _agent_with_cli(effective, spec)
    except RingfenceError:
        return False
    is_installed = agent.program is not None and agent.program.version is not None
    return is_installed or (spec.image or "").startswith(_AGENTS_IMAGE)
