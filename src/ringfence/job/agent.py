"""The agent's part of a run: its model, its tools, its loop."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from ringfence.egress.gateway.gateway import Gateway
from ringfence.errors import PolicyRefused, RingfenceError, UsageError
from ringfence.events import AgentAnswered
from ringfence.job.agent_request import AgentRequest
from ringfence.job.model_access import ModelAccess
from ringfence.job.outcome import Outcome, outcome_of_agent
from ringfence.job.request import Part
from ringfence.model.price_table import Price
from ringfence.model.registry import check_name, known_model, missing_credential, needs_credential
from ringfence.runtime.base import Emit, Runtime, Task
from ringfence.runtime.function import AgentFunction, FunctionRuntime
from ringfence.runtime.options import Options, check_options, given_options
from ringfence.runtime.prompts import system_prompt as prompt_of
from ringfence.runtime.registry import runtime_class
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.secret import Credential, Provider

_TOOLSET = "coder"
_PRESETS = {
    "packages": "the public servers of package managers (pip, npm, apt, Maven, cargo and others)",
    "model": "the model's API, at the base URL in the environment",
    "open": "every public host",
}


async def check_agent(request: AgentRequest) -> None:
    """See that the agent can be had, before anything is made for it.

    Raises:
        UsageError: The runtime is unknown, has not what is asked for, or what its tools need is not installed.
        ConfigurationError: The model's script cannot be read.
        PolicyRefused: A limit on cost, and the price of the model is not known.
    """
    runtime_class(request.runtime)
    check_options(request.runtime, asked_of(request))
    if request.mcp_servers and request.runtime == "api":
        import ringfence.tool.mcp  # noqa: F401 -- says what to install
    if request.runtime == "claude-sdk":
        from ringfence.runtime.claude_sdk import check_host

        await check_host(request.sdk_options, force=request.options.force)
    name, prices = await known_model(request.model)
    request.limits.check_price(name, {**prices, **request.prices}, runtime=request.runtime)


def asked_of(request: AgentRequest) -> list[str]:
    """What is asked of a runtime, as keys of `SUPPORT`."""
    beside = {
        "toolset": request.toolset is not None,
        "python_tools": bool(request.functions),
        "mcp_servers": bool(request.mcp_servers),
    }
    return [*given_options(request.options), *(name for name, is_asked in beside.items() if is_asked)]


async def run_agent(request: AgentRequest, sandbox: Sandbox, emit: Emit) -> Outcome:
    """Let the agent work until it ends by itself, and say what that means.

    Raises:
        LimitReached, AuthenticationFailed, InfrastructureFault, SandboxDied: As the runtime's contract.
    """
    gateway = (request.model_access or await access_for(request)).gateway
    name, prices = await known_model(request.model)
    prices = {**prices, **request.prices}
    async with gateway.opened(emit), _runtime(request, gateway, prices, sandbox) as runtime:
        try:
            return await _worked(runtime, task_of(request, name, sandbox.spec), sandbox, emit)
        except RingfenceError as exc:
            # The gateway's errors come back in the API's words; it knows them better.
            raise (gateway.stopped or exc) from exc


def part_of(runtime: Runtime | AgentFunction, task: Task) -> Part:
    """What a `JobRun` does inside: let a runtime of your own work on a task. A plain async function is one.

    Args:
        runtime: A `Runtime`, or a function of task, sandbox and emit that gives the final text or a `RuntimeResult`.
        task: Its task.
    """
    made = runtime if isinstance(runtime, Runtime) else FunctionRuntime(runtime)

    async def work(sandbox: Sandbox, emit: Emit) -> Outcome:
        return await _worked(made, task, sandbox, emit)

    return work


async def _worked(runtime: Runtime, task: Task, sandbox: Sandbox, emit: Emit) -> Outcome:
    result = await runtime.run(task, sandbox, emit)
    if runtime.has_own_words:
        await emit(
            AgentAnswered(
                ended_by=result.ended_by,
                final_text=result.final_text,
                structured_output=result.structured_output,
                denied=list(result.denied),
            )
        )
    return outcome_of_agent(result.ended_by, result.reason)


@asynccontextmanager
async def _runtime(
    request: AgentRequest, gateway: Gateway, prices: Mapping[str, Price], sandbox: Sandbox
) -> AsyncIterator[Runtime]:
    """The runtime that is asked for, with all that it needs."""
    if request.runtime != "api":
        yield await _client_runtime(request, gateway, sandbox)
        return
    # A client needs none of these, and what validates tools' input takes long to import.
    from ringfence.model.messages_api import MessagesModel
    from ringfence.runtime.api import ApiRuntime
    from ringfence.tool.toolset import open_toolset

    async with open_toolset(
        request.toolset or _TOOLSET,
        sandbox=sandbox,
        functions=request.functions,
        mcp_servers=request.mcp_servers,
        allowed=request.options.tools_allowed,
        denied=request.options.tools_denied,
    ) as toolset:
        model = MessagesModel(gateway)
        yield ApiRuntime(model=model, toolset=toolset, limits=request.limits, prices=prices)


async def _client_runtime(request: AgentRequest, gateway: Gateway, sandbox: Sandbox) -> Runtime:
    from ringfence.runtime.client.program import checked_inside
    from ringfence.runtime.client.registry import client_of
    from ringfence.runtime.client.runtime import ClientRuntime

    if request.program is None:
        raise UsageError(f"the runtime {request.runtime!r} needs its program; find it with `find_program`")
    client = client_of(request.runtime)
    program = await checked_inside(request.program, client, sandbox, force=request.options.force)
    if request.runtime != "claude-sdk":
        return ClientRuntime(client, program, limits=request.limits, witness=gateway, session=request.session)
    from ringfence.runtime.claude_sdk import ClaudeSdkRuntime

    return ClaudeSdkRuntime(
        program,
        options=request.sdk_options,
        functions=request.functions,
        limits=request.limits,
        witness=gateway,
        session=request.session,
    )


async def access_for(
    request: AgentRequest,
    *,
    credentials: Sequence[Credential] = (),
    renewals: Mapping[Provider, Callable[[], Awaitable[Credential]]] | None = None,
) -> ModelAccess:
    """What the agent's gateway is made of.

    Args:
        request: The agent.
        credentials: The one for its model, and others for providers whom those inside may ask too.
        renewals: What gives them as they are at each request.

    Raises:
        AuthenticationFailed: There is no credential.
        ConfigurationError: The model's script cannot be read.
        PolicyRefused: The model is not among those that may be asked.
        UsageError: No model is named, or a base URL is none.
    """
    check_name(request.model)
    if not credentials and needs_credential(request.model):
        raise missing_credential(request.model)
    name, prices = await known_model(request.model)
    if not request.model_policy.allows(name):
        raise PolicyRefused(
            f"the model {name!r} is not among egress.models ({', '.join(request.model_policy.models)}); "
            "name another, or add it there",
            rule="model-allowed",
        )
    return ModelAccess(
        request.model,
        credentials=credentials,
        renewals=renewals or {},
        tokens=request.limits.tokens,
        cost_usd=request.limits.cost_usd,
        turns=request.limits.turns,
        agent_is_inside=request.runtime != "api",
        prices={**prices, **request.prices},
        policy=request.model_policy,
    ).checked()


def system_of(
    toolset: str, system_append: str | None, spec: SandboxSpec, *, system_prompt: str | None = None
) -> str:
    """What an agent is told beforehand: how to work, what its sandbox may reach, and what the user adds."""
    prompt = system_prompt or prompt_of(toolset, reachable=_reachable(spec))
    return f"{prompt}\n\n{system_append}" if system_append else prompt


def _reachable(spec: SandboxSpec) -> list[str]:
    forwards = [f"{forward.name or '127.0.0.1'}:{forward.port}" for forward in spec.forward]
    denied = ", ".join(str(rule) for rule in spec.egress.deny)
    granted = [_PRESETS.get(str(rule), str(rule)) for rule in spec.egress.allow]
    return [*forwards, *granted, *([f"never {denied}"] if denied and granted else [])]


def task_of(request: AgentRequest, name: str, spec: SandboxSpec) -> Task:
    """What the runtime is asked.

    Args:
        request: What the run is asked.
        name: The model, as its API knows it.
        spec: Of the sandbox, of which the agent is told.
    """
    toolset = request.toolset or _TOOLSET
    options = _options(request, spec)
    is_api = request.runtime == "api"
    return Task(
        prompt=request.prompt,
        model=name,
        system=system_of(toolset, options.system_append, spec, system_prompt=options.system_prompt)
        if is_api
        else None,
        toolset=toolset,
        conversation=request.conversation,
        options=options,
        session=request.session.session if request.session is not None else None,
    )


def _options(request: AgentRequest, spec: SandboxSpec) -> Options:
    """What is asked; a client is told of its sandbox beside its own system prompt, unless that is replaced."""
    options = request.options
    changes: dict[str, object] = {"mcp_servers": (*options.mcp_servers, *request.mcp_servers)}
    if request.runtime != "api" and options.system_prompt is None:
        reachable = [each for each in _reachable(spec) if each != _PRESETS["model"]]
        told = (prompt_of("client", reachable=reachable), options.system_append)
        changes["system_append"] = "\n\n".join(each for each in told if each)
    return options.model_copy(update=changes)
