"""`ringfence run`: one task, one fence, one record."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import (
    BackendOption,
    CpusOption,
    DiskOption,
    EnvOption,
    MemoryOption,
    ModeOption,
    PidsOption,
    SetupOption,
    SoftOption,
    WorkspaceOption,
    load_settings,
    secrets_of,
    spec_of,
    warn_about,
)
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.config.model import Settings
    from ringfence.job.request import AgentRequest, RunRequest

_PROMPT_BYTES = 16 * 1024**2


def run(
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT|-]", help="The task; - reads stdin.")
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the task from FILE.")
    ] = None,
    workspace: WorkspaceOption = Path(),
    backend: BackendOption = None,
    mode: ModeOption = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Model, or scripted:FILE.")] = None,
    toolset: Annotated[
        str | None, typer.Option("--toolset", help="coder, or operator (one shell tool).")
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option("--verify", metavar="CMD", help="Check that decides the outcome, in a new sandbox."),
    ] = None,
    require_verified: Annotated[
        bool | None, typer.Option("--require-verified", help="Exit 3 unless a check has passed.")
    ] = None,
    memory: MemoryOption = None,
    cpus: CpusOption = None,
    pids: PidsOption = None,
    disk: DiskOption = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Wall clock limit, like 30m.")
    ] = None,
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", metavar="N", help="Replies of the model.")
    ] = None,
    max_tool_calls: Annotated[
        int | None, typer.Option("--max-tool-calls", metavar="N", help="Calls of tools.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Tokens in all.")
    ] = None,
    max_cost_usd: Annotated[
        float | None, typer.Option("--max-cost-usd", metavar="USD", help="Cost in all.")
    ] = None,
    soft_limits: SoftOption = None,
    setup: SetupOption = None,
    env: EnvOption = None,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Go on with the last run's conversation in this workspace.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print events as NDJSON.")] = False,
) -> None:
    """Let an agent work on a task inside a fence; verify it; keep the record."""
    text = _prompt(prompt, file)
    if verify is not None and not verify.strip():
        raise UsageError(
            f"--verify {verify!r} is empty; give the command that checks the work, or leave it out"
        )
    effective = load_settings(
        workspace,
        backend=backend,
        mode=mode,
        memory=memory,
        cpus=cpus,
        pids=pids,
        disk=disk,
        soft_limits=soft_limits,
        env=env,
        setup=setup,
        more=[
            ("run.model", "--model", model),
            ("run.toolset", "--toolset", toolset),
            ("run.verify", "--verify", verify),
            ("run.require_verified", "--require-verified", require_verified or None),
            ("limits.wall_clock", "--timeout", timeout),
            ("limits.turns", "--max-turns", max_turns),
            ("limits.tool_calls", "--max-tool-calls", max_tool_calls),
            ("limits.tokens", "--max-tokens", max_tokens),
            ("limits.cost_usd", "--max-cost-usd", max_cost_usd),
        ],
    )
    warn_about(effective)
    from ringfence.model import warm_up

    warm_up()
    import anyio

    raise typer.Exit(anyio.run(_run, text, workspace, effective, continue_, json))


def _prompt(prompt: str | None, file: Path | None) -> str:
    if (prompt is None) == (file is None):
        raise UsageError("give the task once: as PROMPT, as - for stdin, or by --file FILE")
    if file is not None:
        data = _read_prompt(file)
    elif prompt == "-":
        data = sys.stdin.buffer.read(_PROMPT_BYTES + 1) if sys.stdin else b""
    else:
        data = os.fsencode(prompt or "")
    if len(data) > _PROMPT_BYTES:
        raise UsageError(
            f"the task is longer than {_PROMPT_BYTES} bytes; put the material in the workspace instead"
        )
    text = data.decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("the task is empty; say what the agent shall do")
    return text


def _read_prompt(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(_PROMPT_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(f"--file {str(file)!r} cannot be read: {reason}; name a file with the task") from exc


async def _requests(
    prompt: str, workspace: Path, effective: "Effective", *, go_on: bool
) -> "tuple[RunRequest, AgentRequest]":
    import anyio.to_thread

    from ringfence.cli.running import close_the_dead
    from ringfence.job.agent import check_agent
    from ringfence.job.continuing import Continuation, last_run_of
    from ringfence.job.request import RunRequest

    settings = effective.settings
    place = await anyio.to_thread.run_sync(workspace.resolve)
    earlier = Continuation()
    if go_on:
        await close_the_dead()
        earlier = last_run_of(place)
    agent = agent_request(prompt, settings, conversation=earlier.conversation)
    await check_agent(agent)
    secrets = [*secrets_of(settings), *([agent.credential.value] if agent.credential else [])]
    run = RunRequest(
        prompt=prompt,
        workspace=place,
        spec=spec_of(effective, place),
        wall_clock_s=settings.limits.wall_clock,
        verify=settings.run.verify,
        require_verified=settings.run.require_verified,
        loosenings=effective.loosenings(),
        secrets=secrets,
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        model=agent.model,
        runtime=agent.runtime,
        toolset=agent.toolset,
        continues=earlier.run_id,
        session_id=earlier.session_id,
    )
    return run, agent


def agent_request(
    prompt: str,
    settings: "Settings",
    *,
    conversation: tuple[dict[str, Any], ...] = (),
    with_credential: bool = True,
) -> "AgentRequest":
    """What an agent needs, by the settings.

    Raises:
        AuthenticationFailed: The model needs a credential and there is none.
        ConfigurationError: A tool cannot be loaded.
    """
    from ringfence.job.request import AgentRequest
    from ringfence.model.price_table import Price
    from ringfence.model.registry import needs_credential
    from ringfence.runtime.limits import Limits
    from ringfence.secret import resolve_credential
    from ringfence.tool.mcp_server import McpServer
    from ringfence.tool.python_function import import_tool

    limits = settings.limits
    needs_one = with_credential and needs_credential(settings.run.model)
    return AgentRequest(
        prompt=prompt,
        model=settings.run.model,
        limits=Limits(
            turns=limits.turns,
            tool_calls=limits.tool_calls,
            tokens=limits.tokens,
            cost_usd=limits.cost_usd,
            wall_clock_s=limits.wall_clock,
        ),
        toolset=settings.run.toolset,
        system_append=settings.run.system_append,
        prices={name: Price(**price.model_dump()) for name, price in settings.prices.items()},
        functions=[import_tool(reference) for reference in settings.tools.python],
        mcp_servers=[McpServer(name=one.name, command=one.command) for one in settings.tools.mcp],
        credential=resolve_credential() if needs_one else None,
        conversation=conversation,
    )


async def _run(prompt: str, workspace: Path, effective: "Effective", go_on: bool, json: bool) -> int:
    from functools import partial

    from ringfence.cli.console import open_console
    from ringfence.cli.live import LiveView
    from ringfence.cli.ndjson import print_event
    from ringfence.cli.running import run_to_end
    from ringfence.cli.summary import print_summary
    from ringfence.job.agent import run_agent

    run, agent = await _requests(prompt, workspace, effective, go_on=go_on)
    console = open_console()
    view = print_event if json else LiveView(console, agent.limits).show
    result = await run_to_end(run, partial(run_agent, agent), view=view)
    if not json:
        print_summary(console, result)
    return result.exit_code
