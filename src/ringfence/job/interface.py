"""The Python interface to runs: `run_agent`, and its synchronous variant.

A run from Python resolves configuration and credentials as `ringfence run` does. Arguments take precedence like options
of the command line: they override the environment and files.
"""

import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from ringfence.config import Flag, load
from ringfence.errors import UsageError
from ringfence.events import Event
from ringfence.job.agent import work_of
from ringfence.job.credentials import with_credentials
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import RunResult
from ringfence.job.request import RunRequest
from ringfence.job.resolution import command_request, resolved_agent_request
from ringfence.job.run import JobRun
from ringfence.job.sandbox_spec import with_fallback
from ringfence.runtime.base import AgentFunction, Runtime, Task
from ringfence.runtime.limits import Limits
from ringfence.sandbox import SandboxSpec
from ringfence.tool.base import Tool

if TYPE_CHECKING:
    from ringfence.config import Effective

_P = ParamSpec("_P")
_T = TypeVar("_T")
_LOG = logging.getLogger("ringfence")
_LIMIT_KEYS = {"wall_clock_s": "wall_clock"}
_REQUIRED = {"task", "workspace", "tools"}
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "task": ((str,), "the task as text"),
    "workspace": ((str, os.PathLike), "the path of a directory"),
    "agent": ((str, Runtime, Callable), "the name of a runtime, an async function or a Runtime"),  # type: ignore[dict-item]
    "sandbox": ((SandboxSpec,), "a SandboxSpec"),
    "limits": ((Limits,), "Limits"),
    "verify": ((str,), "a shell command as text"),
    "tools": ((Sequence,), "a list of tools"),
    "labels": ((Mapping,), "a mapping of names to values"),
    "on_event": ((Callable,), "a function that takes an event"),  # type: ignore[dict-item]
}
"""The types of arguments, and their descriptions for errors."""
_EMPTY = {
    "task": "describe what the agent should do",
    "verify": "give the command that checks the work, or None for no check",
}


async def run_agent(
    task: str,
    *,
    workspace: Path | str = ".",
    agent: str | Runtime | AgentFunction | None = None,
    model: str | None = None,
    sandbox: SandboxSpec | None = None,
    limits: Limits | None = None,
    verify: str | None = None,
    tools: Sequence[Tool] = (),
    sdk_options: Any = None,
    labels: Mapping[str, str] | None = None,
    on_event: Callable[[Event], Awaitable[None] | None] | None = None,
) -> RunResult:
    """Let an agent work on a task in a sandbox, check its work, and keep a sealed record, as `ringfence run` does.

    Configuration files, `RINGFENCE_*` variables and credentials apply as for `ringfence run`; arguments override them.

    Args:
        task: What the agent is to do; not empty.
        workspace: The directory it works on.
        agent: `api`, `claude`, `codex` or `claude-sdk`; or an agent of your own: an async function of the task, the
            sandbox and a function that records events, or a `Runtime`. None: as configured.
        model: Name of the model, or `scripted:FILE`. None: as configured.
        sandbox: The spec of its sandbox; fields that are not set are as configured.
        limits: Limits on its resources; limits that are not set are as configured.
        verify: Shell command that checks the work in a new sandbox and so decides the outcome.
        tools: Functions of this program that the agent can call, made by `ringfence.tool.tool`.
        sdk_options: A `ClaudeAgentOptions` with hooks and permissions, for `claude-sdk`.
        labels: Labels of the run, by which lists of runs can be filtered.
        on_event: Called with each event after it is in the record. Its first exception stops the run as an interrupt
        does: the work so far is kept, the record is sealed, and then the exception is raised.

    Returns:
        How the run ended. Failures of the run are reported by its `state`, not by an exception.

    Raises:
        UsageError: Before the run began: an argument is invalid, the workspace is not a directory, or
        `run_agent_sync` was called while an event loop runs.
        ConfigurationError, PolicyRefused, AuthenticationFailed: Before the run began.
        InfrastructureFault: The record could not be created or sealed.
        Exception: `on_event` raised it; a note on it names the run.
    """
    _check_types(
        task=task, workspace=workspace, agent=agent, sandbox=sandbox, limits=limits, verify=verify, tools=tools,
        labels=labels, on_event=on_event,
    )  # fmt: skip
    _check_texts(task=task, verify=verify)
    place = await anyio.to_thread.run_sync(_resolve_workspace, workspace)
    flags = [
        Flag("run.runtime", "agent", agent if isinstance(agent, str) else None),
        Flag("run.model", "model", model),
        Flag("run.verify", "verify", verify),
        Flag("labels", "labels", dict(labels) if labels else None),
        *_limit_flags(limits),
        *_sandbox_flags(sandbox, place),
    ]
    effective = await with_fallback(await anyio.to_thread.run_sync(partial(load, place, flags=flags)))
    for what, by in effective.loosenings():
        _LOG.warning("%s (set by %s)", what, by)
    if agent is not None and not isinstance(agent, str):
        _refuse_without_effect(model=model, tools=tools, sdk_options=sdk_options, limits=limits)
        opened = with_credentials(_own_request(task, place, effective, agent), effective, _LOG.warning)
    else:
        overrides: dict[str, Any] = {"functions": tuple(tools)} if tools else {}
        overrides |= {} if sdk_options is None else {"sdk_options": sdk_options}
        opened = resolved_agent_request(task, place, effective, notify=_LOG.warning, overrides=overrides)
    async with opened as request:
        return await _run(request, on_event)


async def _run(request: RunRequest, on_event: Callable[[Event], Awaitable[None] | None] | None) -> RunResult:
    """Run a request, and log the problems of its end."""
    run = JobRun(request, view=_view_of(on_event), store=await recover_runs(_LOG.warning))
    try:
        result = await run.run()
        if run.view_error is not None:
            raise run.view_error
    except Exception as exc:
        if exc is run.view_error:
            exc.add_note(f"on_event raised this: run {run.id} was stopped, and its record is sealed")
        raise
    for problem in result.problems:
        _LOG.warning("%s", problem)
    return result


def _check_texts(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and not text.strip():
            raise UsageError(f"{name}={text!r} is empty; {_EMPTY[name]}")


def _check_types(**arguments: Any) -> None:
    """Check the types of arguments that are not validated as settings.

    Raises:
        UsageError: An argument has another type.
    """
    for name, value in arguments.items():
        kinds, expected = _TYPES[name]
        if not (isinstance(value, kinds) or (value is None and name not in _REQUIRED)):
            raise UsageError(f"{name}={value!r} is of type {type(value).__name__}; give {expected}")
    for tool in arguments["tools"]:
        if not isinstance(tool, Tool):
            raise UsageError(f"tools has {tool!r}, which is no tool; make one by `ringfence.tool.tool`")


def _resolve_workspace(workspace: Path | str) -> Path:
    """Resolve the path of a workspace.

    Raises:
        UsageError: There is no directory.
    """
    try:
        resolved = Path(workspace).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(f"workspace={str(workspace)!r} cannot be used: {reason}; name a directory") from exc
    if not resolved.is_dir():
        raise UsageError(f"workspace={str(workspace)!r} is not a directory; name one")
    return resolved


def _limit_flags(limits: Limits | None) -> list[Flag]:
    names = limits.model_fields_set if limits is not None else ()
    return [
        Flag(f"limits.{_LIMIT_KEYS.get(name, name)}", f"limits.{name}", getattr(limits, name))
        for name in sorted(names)
    ]


def _sandbox_flags(spec: SandboxSpec | None, workspace: Path) -> list[Flag]:
    """The fields of a spec that were set, as settings.

    Raises:
        UsageError: Its workspace is another one.
    """
    if spec is None:
        return []
    if spec.workspace is not None and spec.workspace.resolve() != workspace:
        raise UsageError(
            f"sandbox has the workspace {str(spec.workspace)!r}, and the run has {str(workspace)!r}; leave out one"
        )
    values = spec.model_dump(mode="json", include=spec.model_fields_set - {"workspace"})
    found = {f"sandbox.{name}": value for name, value in values.items()}
    if "ttl_s" in values:
        found["sandbox.ttl"] = found.pop("sandbox.ttl_s")
    if "forward" in values:
        found["sandbox.forward"] = [str(each) for each in spec.forward]
    if "unsafe" in values:
        found["unsafe"] = found.pop("sandbox.unsafe")
    if "egress" in values:
        del found["sandbox.egress"]
        egress = values["egress"]
        if spec.egress.model_fields_set <= {"allow"} or spec.egress.allow:  # `Egress()` grants nothing
            found["egress.allow"] = egress["allow"]
        found["egress.deny"] = egress["deny"] or None
        found["egress.swap"] = egress["swap"] or None
    if "engine_access" in values:
        access = found.pop("sandbox.engine_access") or {}
        found |= {f"engine.{name}": value for name, value in access.items()}
    return [Flag(key, f"sandbox.{key.rpartition('.')[2]}", value) for key, value in found.items()]


def _refuse_without_effect(*, limits: Limits | None, **arguments: Any) -> None:
    """Refuse arguments that do not apply to the program's own agent.

    Raises:
        UsageError: Such an argument is given.
    """
    found = [name for name, value in arguments.items() if value]
    found += (
        [f"limits.{name}" for name in sorted(limits.model_fields_set - {"wall_clock_s"})] if limits else []
    )
    if found:
        raise UsageError(f"{', '.join(found)}: without effect for an agent of your own; leave it out")


def _own_request(
    task: str, workspace: Path, effective: "Effective", agent: Runtime | AgentFunction
) -> RunRequest:
    """The request of a run whose agent is the program's own."""
    settings = effective.settings
    request = command_request((), workspace, effective, purpose="agent")
    return replace(
        request,
        work=work_of(agent, Task(prompt=task, model="")),
        wall_clock_s=settings.limits.wall_clock,
        verify=settings.run.verify,
        require_verified=settings.run.require_verified,
    )


def _view_of(
    on_event: Callable[[Event], Awaitable[None] | None] | None,
) -> Callable[[Event], Awaitable[None]] | None:
    if on_event is None:
        return None

    async def view(event: Event) -> None:
        result = on_event(event)
        if inspect.isawaitable(result):
            await result

    return view


def _blocking(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, _T]:
    """Make a synchronous variant of a function."""

    @wraps(function)
    def run(*args: _P.args, **arguments: _P.kwargs) -> _T:
        try:
            anyio.get_current_task()
        except RuntimeError:  # no event loop runs in this thread, as required
            return anyio.run(partial(function, *args, **arguments))
        raise UsageError(f"{run.__name__} was called in an event loop; await {function.__name__} there")

    run.__name__ = run.__qualname__ = f"{function.__name__}_sync"
    run.__doc__ = f"Do as `{function.__name__}`, for programs without `async`.\n\n{function.__doc__}"
    return run


run_agent_sync = _blocking(run_agent)
