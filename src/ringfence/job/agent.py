"""Runs the agent of a run: checks its program, model and tools, runs its runtime, and interprets the result."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from ringfence.config.egress import EgressRule
from ringfence.egress.gateway.gateway import Gateway
from ringfence.errors import PolicyRefused, RingfenceError, UsageError
from ringfence.events import AgentAnswered, Emit
from ringfence.job.model_access import ModelAccess
from ringfence.job.outcome import Outcome, outcome_of_agent
from ringfence.job.request import AgentRequest, CustomWork
from ringfence.runtime.base import AgentFunction, FunctionRuntime, Runtime, Task
from ringfence.runtime.options import Options, check_options, given_options
from ringfence.runtime.prompts import system_prompt as prompt_of
from ringfence.runtime.registry import agent_cli_of, check_runtime, runs_agent_cli
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.sandbox.registry import traits_of

_PRESETS = {
    "packages": "the public servers of package managers (pip, npm, apt, Maven, cargo and others)",
    "model": "the model's API, at the base URL in the environment",
    "open": "every public host",
}


async def check_agent(request: AgentRequest, access: ModelAccess) -> None:
    """Check that the agent can work, before anything is created for it.

    Args:
        request: The agent.
        access: The models that it may request.

    Raises:
        UsageError: The runtime is unknown or lacks a requested feature, or a package that its tools need is not
            installed; or no model is named.
        UnknownTool: A tool is allowed or denied that the agent does not have.
        ConfigurationError: The model's script cannot be read.
        PolicyRefused: The model is not allowed; or there is a limit on cost, and the price of the model is not known.
    """
    check_runtime(request.runtime)
    check_options(request.runtime, requested_features(request))
    if request.mcp_servers and not runs_agent_cli(request.runtime):
        import ringfence.tool.mcp  # noqa: F401 -- says what to install
    if request.runtime == "claude-sdk":
        from ringfence.runtime.claude_sdk import check_host

        await check_host(request.sdk_options, force=request.options.force)
    if not runs_agent_cli(request.runtime):
        _check_tool_names(request)
    access.check()
    request.limits.check_price(access.name, access.all_prices, runtime=request.runtime)


def _check_tool_names(request: AgentRequest) -> None:
    from ringfence.tool.toolset import check_tool_names

    check_tool_names(
        request.toolset_used,
        functions=request.functions,
        mcp_servers=request.mcp_servers,
        allowed=request.options.tools_allowed,
        denied=request.options.tools_denied,
        permitted=request.options.tools_permitted,
    )


def may_permit(request: AgentRequest, tool: str) -> bool:
    """Whether the agent could start with one more tool permitted, as far as the checks before a run show."""
    permitted = (*request.options.tools_permitted, tool)
    options = request.options.model_copy(update={"tools_permitted": permitted})
    extended = replace(request, options=options)
    try:
        check_options(request.runtime, requested_features(extended))
        if runs_agent_cli(request.runtime):
            agent_cli_of(request.runtime).check(request.prompt, options)
        else:
            _check_tool_names(extended)
    except UsageError:
        return False
    return True


def requested_features(request: AgentRequest) -> list[str]:
    """Return the features that the request needs of a runtime, as keys of `SUPPORT`."""
    others = {
        "toolset": request.toolset is not None,
        "python_tools": bool(request.functions),
        "mcp_servers": bool(request.mcp_servers),
    }
    return [*given_options(request.options), *(name for name, is_needed in others.items() if is_needed)]


def with_model_granted(spec: SandboxSpec) -> SandboxSpec:
    """Return the spec with access to the model's API, which an agent CLI inside needs to reach its model.

    Raises:
        PolicyRefused: The spec is of the bare host.
    """
    if not traits_of(spec).is_fence:
        raise PolicyRefused(
            "an agent CLI does not run on the bare host, because it reaches its model through the sandbox's gateway; "
            "use a sandbox, such as --sandbox bubblewrap (on the bare host only the runtime `api` works)",
            rule="client-unfenced",
        )
    if spec.egress.wants_model:
        return spec
    rules = (*spec.egress.allow, EgressRule(preset="model"))
    return spec.model_copy(update={"egress": spec.egress.model_copy(update={"allow": rules})})


async def with_agent_cli(request: AgentRequest, spec: SandboxSpec) -> tuple[AgentRequest, SandboxSpec]:
    """Return the agent with the program of its CLI, and the spec with the program and its plugins mounted.

    Raises:
        ConfigurationError: There is no such program, or its version was not tested.
        PolicyRefused: As `with_model_granted`.
        UsageError: The runtime has no CLI, or the CLI cannot be started with these arguments.
    """
    from ringfence.runtime.agent_cli.program import find_program, shown_plugins

    client, granted = agent_cli_of(request.runtime), with_model_granted(spec)
    client.check(request.prompt, request.options)
    program = await find_program(client, spec, request.options)
    plugins, options = shown_plugins(request.options, spec)
    mounts = (*spec.mounts, *program.mounts, *plugins)
    return (
        replace(request, program=program, options=options),
        granted.model_copy(update={"mounts": mounts}),
    )


async def run_runtime(agent: AgentRequest, access: ModelAccess, sandbox: Sandbox, emit: Emit) -> Outcome:
    """Run an agent until it ends by itself, and return the outcome.

    Raises:
        LimitReached, AuthenticationFailed, InfrastructureFault, SandboxDied: As the runtime's contract.
    """
    async with _runtime(agent, access, sandbox) as runtime:
        try:
            return await _run(runtime, task_of(agent, access.name, sandbox.spec), sandbox, emit)
        except RingfenceError as exc:
            if access.gateway.stopped is None:
                raise
            # The agent sees the gateway's error only as a response of the API; the gateway has the original error.
            raise access.gateway.stopped from exc


def work_of(runtime: Runtime | AgentFunction, task: Task) -> CustomWork:
    """Return the work of a caller's own runtime, which may be a plain async function.

    Args:
        runtime: A `Runtime`, or a function of task, sandbox and emit that returns the final text or a `RuntimeResult`.
        task: The task.
    """
    made = runtime if isinstance(runtime, Runtime) else FunctionRuntime(runtime)

    async def work(sandbox: Sandbox, emit: Emit) -> Outcome:
        return await _run(made, task, sandbox, emit)

    return CustomWork(task.prompt, work)


async def _run(runtime: Runtime, task: Task, sandbox: Sandbox, emit: Emit) -> Outcome:
    result = await runtime.run(task, sandbox, emit)
    if not runtime.records_replies:
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
async def _runtime(request: AgentRequest, access: ModelAccess, sandbox: Sandbox) -> AsyncIterator[Runtime]:
    """Open the requested runtime, with its model and tools."""
    if runs_agent_cli(request.runtime):
        yield await _cli_runtime(request, access.gateway, sandbox)
        return
    # An agent CLI needs none of these, and the validation of tools' input takes long to import.
    from ringfence.model.messages_api import MessagesModel
    from ringfence.runtime.api import ApiRuntime
    from ringfence.tool.toolset import open_toolset

    async with open_toolset(
        request.toolset_used,
        sandbox=sandbox,
        functions=request.functions,
        mcp_servers=request.mcp_servers,
        allowed=request.options.tools_allowed,
        denied=request.options.tools_denied,
        permitted=request.options.tools_permitted,
        asks=request.asks,
    ) as toolset:
        model = MessagesModel(access.gateway)
        yield ApiRuntime(model=model, toolset=toolset, limits=request.limits, prices=access.all_prices)


async def _cli_runtime(request: AgentRequest, gateway: Gateway, sandbox: Sandbox) -> Runtime:
    from ringfence.runtime.agent_cli.program import checked_inside
    from ringfence.runtime.agent_cli.runtime import CliRuntime

    assert request.program is not None, "`with_agent_cli` finds it"
    client = agent_cli_of(request.runtime)
    program = await checked_inside(request.program, client, sandbox, force=request.options.force)
    if request.runtime != "claude-sdk":
        return CliRuntime(client, program, gateway, limits=request.limits, session=request.session)
    from ringfence.runtime.claude_sdk import ClaudeSdkRuntime

    return ClaudeSdkRuntime(
        program,
        gateway,
        options=request.sdk_options,
        functions=request.functions,
        limits=request.limits,
        session=request.session,
    )


def system_of(
    toolset: str, system_append: str | None, spec: SandboxSpec, *, system_prompt: str | None = None
) -> str:
    """The system prompt: how to work, which hosts the sandbox may reach, and the user's additions."""
    prompt = system_prompt or prompt_of(toolset, reachable=_reachable(spec))
    return f"{prompt}\n\n{system_append}" if system_append else prompt


def _reachable(spec: SandboxSpec) -> list[str]:
    forwards = [f"{forward.name or '127.0.0.1'}:{forward.port}" for forward in spec.forward]
    denied = ", ".join(str(rule) for rule in spec.egress.deny)
    granted = [_PRESETS.get(str(rule), str(rule)) for rule in spec.egress.allow]
    return [*forwards, *granted, *([f"never {denied}"] if denied and granted else [])]


def task_of(request: AgentRequest, name: str, spec: SandboxSpec) -> Task:
    """The task of the request's runtime.

    Args:
        request: The agent.
        name: The model's name in its API.
        spec: The spec of the sandbox, which the prompt describes.
    """
    toolset = request.toolset_used
    options = _options(request, spec)
    return Task(
        prompt=request.prompt,
        model=name,
        system=""
        if runs_agent_cli(request.runtime)
        else system_of(toolset, options.system_append, spec, system_prompt=options.system_prompt),
        conversation=request.conversation,
        options=options,
        session=request.session.session if request.session is not None else None,
    )


def _options(request: AgentRequest, spec: SandboxSpec) -> Options:
    """The options; a description of the sandbox is added to an agent CLI's own system prompt, unless it is replaced."""
    options = request.options
    changes: dict[str, object] = {"mcp_servers": (*options.mcp_servers, *request.mcp_servers)}
    if runs_agent_cli(request.runtime) and options.system_prompt is None:
        reachable = [each for each in _reachable(spec) if each != _PRESETS["model"]]
        parts = (prompt_of("client", reachable=reachable), options.system_append)
        changes["system_append"] = "\n\n".join(each for each in parts if each)
    return options.model_copy(update=changes)
