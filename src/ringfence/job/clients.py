"""What a run needs so that its agent can be a client: the model's gateway, the program, the right credential."""

from dataclasses import replace

from ringfence.config.egress import EgressRule
from ringfence.job.request import AgentRequest
from ringfence.runtime.client.registry import client_of
from ringfence.sandbox import SandboxSpec
from ringfence.secret import Provider

_OPENAI = frozenset({"codex-cli"})


def provider_of(runtime: str) -> Provider:
    """Whose models a runtime asks."""
    return "openai" if runtime in _OPENAI else "anthropic"


def with_model_granted(spec: SandboxSpec) -> SandboxSpec:
    """The same, with the model's API granted: a client inside has no other way to think."""
    if spec.egress.wants_model:
        return spec
    rules = (*spec.egress.allow, EgressRule(preset="model"))
    return spec.model_copy(update={"egress": spec.egress.model_copy(update={"allow": rules})})


async def with_client(request: AgentRequest, spec: SandboxSpec) -> tuple[AgentRequest, SandboxSpec]:
    """An agent with its client's program, and a sandbox that shows that and its plugins.

    Raises:
        ConfigurationError: There is no such program, or its version is not among those tried.
        UsageError: The runtime is no client.
    """
    from ringfence.runtime.client.program import find_program, shown_plugins

    program = await find_program(client_of(request.runtime), spec, request.options)
    plugins, options = shown_plugins(request.options, spec)
    mounts = (*spec.mounts, *program.mounts, *plugins)
    return (
        replace(request, program=program, options=options),
        with_model_granted(spec).model_copy(update={"mounts": mounts}),
    )
