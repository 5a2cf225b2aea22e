"""Checks that this machine can enforce the agents' limits and has their programs, before a job is accepted."""

from collections.abc import Iterator

import anyio.to_thread

from ringfence.errors import ConfigurationError, PolicyRefused, RingfenceError
from ringfence.fleet.config.definition import Agent, Fleet
from ringfence.fleet.worker.job_settings import effective_settings
from ringfence.job.resolution import options_of
from ringfence.job.sandbox_spec import spec_of
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.registry import limit_refusal, traits_of


async def refused_limits(fleet: Fleet) -> list[str]:
    """Return a line for each agent with a limit that this machine cannot enforce, and what would allow it.

    The result is empty for a fleet of several machines: its workers may be elsewhere, and each refuses limits that it
    cannot enforce.
    """
    lines = []
    is_trusted = not fleet.untrusted()
    for agent, spec in _specs(fleet):
        if not is_trusted and _names_an_engine(spec):
            continue  # an untrusted file must not cause a connection to an engine that it names
        if refusal := await limit_refusal(spec, has_option=False):
            lines.append(f"{_place(agent, 'sandbox')}agents.{agent.name}: {refusal}")
    return lines


async def check_limits(fleet: Fleet) -> None:
    """Check that each limit that is set for an agent can be enforced on this machine.

    Raises:
        PolicyRefused: A limit cannot be enforced.
    """
    lines = await refused_limits(fleet)
    if lines:
        agents = "agent" if len(lines) == 2 else "agents"
        more = (
            f" (and {len(lines) - 1} more {agents}; `ringfence fleet validate` names all)"
            if lines[1:]
            else ""
        )
        raise PolicyRefused(lines[0] + more, rule="limits-enforced")


async def missing_programs(fleet: Fleet) -> list[str]:
    """Return a line for each agent whose runtime is a program or package that is not installed here.

    Programs are run to read their version, so none is checked before the user trusts the files that name them.
    """
    lines: list[str] = []
    if fleet.untrusted():
        return lines
    found: dict[tuple[object, ...], str | None] = {}
    for agent, spec in _specs(fleet):
        settings = agent.settings
        kind = (settings.run.runtime, settings.client, spec.image, spec.backend, spec.workspace)
        if kind not in found:
            found[kind] = await _missing(agent, spec)
        if problem := found[kind]:
            lines.append(f"{_place(agent, 'run.runtime')}agents.{agent.name}.run.runtime: {problem}")
    return lines


def _specs(fleet: Fleet) -> Iterator[tuple[Agent, SandboxSpec]]:
    """Yield each agent with its sandbox spec, for a fleet on this machine; the jobs report an invalid one."""
    if fleet.settings.engine.type != "sqlite":
        return
    for agent in fleet.agents.values():
        try:
            yield agent, spec_of(effective_settings(agent.settings, agent.name), agent.settings.workspace)
        except RingfenceError:
            continue


async def _missing(agent: Agent, spec: SandboxSpec) -> str | None:
    from ringfence.runtime.agent_cli.program import find_program
    from ringfence.runtime.registry import agent_cli_of

    runtime = agent.settings.run.runtime
    if runtime == "api":
        return None
    try:
        options = options_of(agent.settings)
        if runtime == "claude-sdk":
            from ringfence.runtime.claude_sdk.runtime import check_sdk

            await anyio.to_thread.run_sync(lambda: check_sdk(force=options.force))
        await find_program(agent_cli_of(runtime), spec, options)
    except ConfigurationError as exc:
        return f"its jobs fail: {exc}"
    return None


def _names_an_engine(spec: SandboxSpec) -> bool:
    return spec.engine is not None or traits_of(spec).needs_image


def _place(agent: Agent, key: str) -> str:
    origin = agent.origin(key)
    return f"{origin}: " if origin.is_file else ""
