"""`ringfence run`: one task, one fence, one record."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli import options
from ringfence.cli.run_task import run_task


def run(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The task, in quotes; - reads stdin.")
    ] = None,
    *,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read the task from FILE.")
    ] = None,
    workspace: options.WorkspaceOption = Path(),
    sandbox: options.SandboxOption = None,
    image: options.ImageOption = None,
    engine: options.EngineOption = None,
    mode: options.ModeOption = None,
    model: options.ModelOption = None,
    runtime: options.RuntimeOption = None,
    toolset: options.ToolsetOption = None,
    system_prompt: options.SystemPromptOption = None,
    system_append: options.SystemAppendOption = None,
    allow_tool: options.AllowToolOption = None,
    deny_tool: options.DenyToolOption = None,
    permission_mode: options.PermissionModeOption = None,
    output_schema: options.OutputSchemaOption = None,
    idle_timeout: options.IdleTimeoutOption = None,
    cli_path: options.CliPathOption = None,
    cli_arg: options.CliArgOption = None,
    plugin: options.PluginOption = None,
    settings_source: options.SettingsSourceOption = None,
    force: options.ForceOption = None,
    verify: options.VerifyOption = None,
    require_verified: options.RequireVerifiedOption = None,
    memory: options.MemoryOption = None,
    cpus: options.CpusOption = None,
    pids: options.PidsOption = None,
    disk: options.DiskOption = None,
    timeout: options.TimeoutOption = None,
    wait: options.WaitOption = "0",
    max_turns: options.MaxTurnsOption = None,
    max_tool_calls: options.MaxToolCallsOption = None,
    max_tokens: options.MaxTokensOption = None,
    max_cost_usd: options.MaxCostOption = None,
    soft_limits: options.SoftLimitsOption = None,
    setup: options.SetupOption = None,
    forward: options.ForwardOption = None,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
    auth: options.AuthOption = None,
    continue_: Annotated[
        bool, typer.Option("--continue", help="Go on with the last run's session in this workspace.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="ID", help="Go on with this run's or session's, by its id."),
    ] = None,
    fork: Annotated[
        bool,
        typer.Option("--fork", help="With either: leave that session as it is, and begin another from it."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print events as NDJSON.")] = False,
) -> None:
    """Let an agent work on a task inside a fence. Verify it; keep the record."""
    code = run_task(
        prompt, file, workspace, json=json, wait=wait, continue_=continue_, resume=resume, fork=fork,
        sandbox=sandbox, image=image, engine=engine, mode=mode, model=model,
        toolset=toolset, verify=verify, require_verified=require_verified, memory=memory, cpus=cpus, pids=pids,
        disk=disk, timeout=timeout, max_turns=max_turns, max_tool_calls=max_tool_calls, max_tokens=max_tokens,
        max_cost_usd=max_cost_usd, soft_limits=soft_limits, setup=setup, forward=forward, allow=allow, env=env,
        auth=auth, runtime=runtime, system_prompt=system_prompt, system_append=system_append,
        allow_tool=allow_tool, deny_tool=deny_tool, permission_mode=permission_mode,
        output_schema=output_schema, idle_timeout=idle_timeout, cli_path=cli_path,
        cli_arg=cli_arg, plugin=plugin, settings_source=settings_source, force=force,
    )  # fmt: skip
    raise typer.Exit(code)
