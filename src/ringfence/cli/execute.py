"""`ringfence exec`: one command in a fence."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli import options
from ringfence.cli.settings import check_image, load_settings, pool_of, secrets_of, spec_of, warn_about

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.job.request import Purpose, RunRequest


def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Program and arguments.")],
    *,
    workspace: options.WorkspaceOption = Path(),
    sandbox: options.SandboxOption = None,
    image: options.ImageOption = None,
    engine: options.EngineOption = None,
    mode: options.ModeOption = None,
    memory: options.MemoryOption = None,
    cpus: options.CpusOption = None,
    pids: options.PidsOption = None,
    disk: options.DiskOption = None,
    timeout: options.TimeoutOption = None,
    soft_limits: options.SoftLimitsOption = None,
    setup: options.SetupOption = None,
    forward: options.ForwardOption = None,
    allow: options.AllowOption = None,
    env: options.EnvOption = None,
) -> None:
    """Run one command in a sandbox. Its output and exit code are passed through, stdin too. Journaled."""
    effective = load_settings(
        workspace, sandbox=sandbox, image=image, engine=engine, mode=mode, memory=memory, cpus=cpus, pids=pids,
        disk=disk, timeout=timeout, soft_limits=soft_limits, setup=setup, forward=forward, allow=allow, env=env,
    )  # fmt: skip
    warn_about(effective)
    request = command_request(tuple(command), workspace, effective, purpose="exec")
    import anyio

    raise typer.Exit(anyio.run(_execute, request, tuple(command)))


def command_request(
    command: tuple[str, ...], workspace: Path, effective: "Effective", *, purpose: "Purpose"
) -> "RunRequest":
    """A run whose inside is `command`."""
    import shlex

    from ringfence.cli.agent import access_of
    from ringfence.job.request import RunRequest

    place = workspace.resolve()
    settings = effective.settings
    spec = spec_of(effective, place)
    check_image(spec)
    access = access_of(settings, spec)
    return RunRequest(
        prompt=shlex.join(command),
        workspace=place,
        spec=spec,
        purpose=purpose,
        wall_clock_s=settings.limits.wall_clock if purpose == "exec" else None,
        loosenings=effective.loosenings(),
        secrets=[*secrets_of(settings), *(each.value for each in (access.credentials if access else ()))],
        configuration=settings.model_dump(mode="json"),
        protect=settings.sandbox.protect,
        pool=None if purpose == "standing" else pool_of(settings),
        runtime=purpose,
        model_access=access,
    )


async def _execute(request: "RunRequest", command: tuple[str, ...]) -> int:
    from contextlib import ExitStack
    from functools import partial

    from ringfence.cli.escape import visible
    from ringfence.cli.flagged import warnings
    from ringfence.cli.private_copy import how_to_apply
    from ringfence.cli.running import run_to_end
    from ringfence.job.command import Stdio, open_null, run_command

    with ExitStack() as files:
        stdio = Stdio(
            sys.stdin.buffer if sys.stdin else None,
            sys.stdout.buffer if sys.stdout else files.enter_context(open_null()),
            sys.stderr.buffer if sys.stderr else files.enter_context(open_null()),
        )
        result = await run_to_end(request, partial(run_command, command, stdio))
    for line in warnings(result.work.runs_on_your_machine, result.run_id) if result.work else ():
        typer.echo(f"ringfence: {visible(line, one_line=True)}", err=True)
    hint = how_to_apply(result.work, result.run_dir)
    if hint is not None:
        typer.echo(f"ringfence: {hint}", err=True)
    if result.command_exit_code is None or result.state.value not in ("succeeded", "failed"):
        typer.echo(f"ringfence: {result.state.value}: {visible(result.reason, one_line=True)}", err=True)
    return result.exit_code if result.command_exit_code is None else result.command_exit_code
