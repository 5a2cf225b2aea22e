"""`ringfence standby`: a process that has everything loaded, from which commands start by fork."""

from typing import Annotated

import typer

from ringfence.cli.options import JsonOption

standby_app = typer.Typer(
    name="standby",
    help="A process from which `run`, `exec` and `loop` start at once.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@standby_app.command()
def start(
    *,
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="It ends after this time without a command.")
    ] = "1h",
) -> None:
    """Have a standby for this state directory, if there is none yet."""
    from ringfence.cli.standby.starting import document
    from ringfence.cli.standby.starting import start as started
    from ringfence.config.units import format_duration, parse_duration
    from ringfence.errors import UsageError

    try:
        idle_s = parse_duration(idle)
    except ValueError as exc:
        raise UsageError(f"--idle: {exc}") from exc
    pid, is_new = started(idle_s)
    if is_new:
        ends = f"it ends after {format_duration(idle_s)} without a command"
        typer.echo(f"a standby is ready, process {pid}; {ends}", err=True)
        return
    told = document()
    after = f" after {format_duration(told['idle_s'])} without a command" if told else ""
    typer.echo(
        f"a standby is ready already, process {pid}; it ends{after}, as it was started; stop it to change that",
        err=True,
    )


@standby_app.command()
def stop(
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Interrupt the commands that started from it, too, and wait for them."),
    ] = False,
) -> None:
    """End it. Commands that started from it go on to their end."""
    from ringfence.cli.plural import counted
    from ringfence.cli.standby.starting import document
    from ringfence.cli.standby.starting import stop as stopped
    from ringfence.errors import InfrastructureFault

    try:
        running = (document() or {}).get("running", 0)
    except InfrastructureFault:  # one that stands still is ended all the same
        running = 0
    pid = stopped(now=now)
    line = "there is no standby" if pid is None else f"the standby is ended, process {pid}"
    if pid is not None and running and not now:
        line += f"; what runs goes on: {counted(running, 'command')}"
    typer.echo(line, err=True)


@standby_app.command()
def status(*, json: JsonOption = False) -> None:
    """Print what it has done, and why it last left a command to start by itself. Exit 1 if there is none."""
    from ringfence.cli.escape import safe_json, visible
    from ringfence.cli.standby.starting import document
    from ringfence.config.units import format_duration

    told = document()
    if json:
        typer.echo(safe_json({"schema_version": 1, "standby": told}, indent=2))
    elif told is None:
        typer.echo("there is no standby; `ringfence standby start` starts one", err=True)
    else:
        typer.echo(
            f"process {told['pid']}, for {format_duration(told['age_s'])}; {told['running']} running, "
            f"{told['served']} started, {told['refused']} left to start by themselves; "
            f"it ends after {format_duration(told['idle_s'])} without a command"
        )
        if told["last_refusal"]:
            typer.echo(visible(f"last because: {told['last_refusal']}", one_line=True))
    if told is None:
        raise typer.Exit(1)
