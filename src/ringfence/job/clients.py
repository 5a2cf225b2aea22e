"""What a run needs so that its agent can be a client: the model's gateway, the program, the right credential."""

from dataclasses import replace

from ringfence.config.egress import EgressRule
from ringfence.job.request import AgentRequest
from ringfence.runtime.base import Task
from ringfence.runtime.client.base import Client, Place
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
        UsageError: The runtime is no client, or its client cannot be started so: an argument that is not the user's to
            give, say.
    """
    from ringfence.runtime.client.program import find_program, shown_plugins

    client = client_of(request.runtime)
    _check_launch(client, request, is_fence=spec.backend != "host")
    program = await find_program(client, spec, request.options)
    plugins, options = shown_plugins(request.options, spec)
    mounts = (*spec.mounts, *program.mounts, *plugins)
    return (
        replace(request, program=program, options=options),
        with_model_granted(spec).model_copy(update={"mounts": mounts}),
    )


def _check_launch(client: Client, request: AgentRequest, *, is_fence: bool) -> None:
    """See that a client can be started so, before anything is made for it; where it will be is no matter.

    Raises:
        UsageError: It cannot.
    """
    place = Place(
        program=client.name, home="/", workspace="/", base_url="http://127.0.0.1:1", is_fence=is_fence
    )
    client.launch(Task(prompt=request.prompt, model=request.model, options=request.options), place)
