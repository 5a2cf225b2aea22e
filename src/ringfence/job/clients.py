"""What a run needs so that its agent can be a client: the model's gateway, the program, the right credential."""

from dataclasses import replace

from ringfence.config.egress import EgressRule
from ringfence.errors import PolicyRefused
from ringfence.job.agent_request import AgentRequest
from ringfence.runtime.base import Task
from ringfence.runtime.client.base import Client, Place
from ringfence.runtime.client.registry import client_of
from ringfence.sandbox import SandboxSpec
from ringfence.sandbox.registry import traits_of
from ringfence.secret import Provider

_OPENAI = frozenset({"codex-cli"})


def provider_of(runtime: str) -> Provider:
    """Whose models a runtime asks."""
    return "openai" if runtime in _OPENAI else "anthropic"


def with_model_granted(spec: SandboxSpec) -> SandboxSpec:
    """The same, with the model's API granted: a client inside has no other way to think.

    Raises:
        PolicyRefused: On the bare host.
    """
    if not traits_of(spec).is_fence:
        raise PolicyRefused(
            "a client on the bare host is refused: it asks its model by the gateway of a fence; take one, such as "
            "--sandbox bubblewrap (without a fence only the runtime `api` works)",
            rule="client-unfenced",
        )
    if spec.egress.wants_model:
        return spec
    rules = (*spec.egress.allow, EgressRule(preset="model"))
    return spec.model_copy(update={"egress": spec.egress.model_copy(update={"allow": rules})})


async def with_client(request: AgentRequest, spec: SandboxSpec) -> tuple[AgentRequest, SandboxSpec]:
    """An agent with its client's program, and a sandbox that shows that and its plugins.

    Raises:
        ConfigurationError: There is no such program, or its version is not among those tried.
        PolicyRefused: As `with_model_granted`.
        UsageError: The runtime is no client, or its client cannot be started so: an argument that is not the user's to
            give, say.
    """
    from ringfence.runtime.client.program import find_program, shown_plugins

    client, granted = client_of(request.runtime), with_model_granted(spec)
    _check_launch(client, request)
    program = await find_program(client, spec, request.options)
    plugins, options = shown_plugins(request.options, spec)
    mounts = (*spec.mounts, *program.mounts, *plugins)
    return (
        replace(request, program=program, options=options),
        granted.model_copy(update={"mounts": mounts}),
    )


def _check_launch(client: Client, request: AgentRequest) -> None:
    """See that a client can be started so, before anything is made for it; where it will be is no matter.

    Raises:
        UsageError: It cannot.
    """
    place = Place(program=client.name, home="/", workspace="/", base_url="http://127.0.0.1:1")
    client.launch(Task(prompt=request.prompt, model=request.model, options=request.options), place)
