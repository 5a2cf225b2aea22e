"""`ringfence sandbox`: creates, uses and removes standing sandboxes."""

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli import options
from ringfence.cli.completion import complete_sandboxes
from ringfence.cli.options import setting_option, takes_settings
from ringfence.cli.output import notify, print_answer
from ringfence.cli.sandbox.actions import (
    change_egress_rule,
    clear_dead_sandboxes,
    execute_in,
    find_standing,
    remove_standing,
    row_of,
    run_interruptible,
    serve_port,
)
from ringfence.cli.settings import duration_of, load_settings, parse_pairs, warn_about
from ringfence.errors import UsageError
from ringfence.escape import safe_json

_Name = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=complete_sandboxes, help="The sandbox's name.")
]
_DEFAULT_IDLE = "1d"


@takes_settings(
    "sandbox", "image", "engine", "mode", "memory", "cpus", "pids", "disk", "soft_limits", "setup",
    "forward", "allow", "env", "ttl",
)  # fmt: skip
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Up to 63 of a-z, 0-9, '.', '_', '-'.")],
    *,
    workspace: options.WorkspaceOption = Path(),
    idle: Annotated[
        str, typer.Option("--idle", metavar="TIME", help="Stop the sandbox after this time without use.")
    ] = _DEFAULT_IDLE,
    **settings: Any,
) -> None:
    """Create a sandbox that stays until it is removed.

    Prints its name. One record covers it from creation to removal.
    """
    effective = load_settings(workspace, **settings)
    warn_about(effective)
    from ringfence.job.resolution import standing_request
    from ringfence.job.standing_sandbox import create_standing

    idle_s = duration_of("--idle", idle)

    async def act() -> int:
        request = await standing_request(name, workspace, effective, notify)
        await clear_dead_sandboxes()
        refused = await create_standing(name, request, idle_s=idle_s)
        if refused is not None:
            notify(refused.message)
            return refused.exit_code
        typer.echo(name)
        return 0

    raise typer.Exit(run_interruptible(act))


def ls(*, json: options.JsonOption = False) -> None:
    """List standing sandboxes."""
    from ringfence.sandbox.supervisor.directory import list_directories, standing_root

    run_interruptible(clear_dead_sandboxes)
    rows = [row_of(directory) for directory in list_directories(standing_root())]
    if json:
        typer.echo(safe_json(rows, indent=2))
        return
    if not rows:
        typer.echo("no standing sandboxes; `ringfence sandbox create NAME` creates one", err=True)
    from ringfence.cli.render.console import open_console, print_table

    names = ("name", "backend", "state", "age", "workspace")
    print_table(open_console(), names, [[str(row[name] or "-") for name in names] for row in rows])


@options.with_options(context_settings=options.PASS_ARGUMENTS)
def execute(
    name: _Name,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Program and arguments.")],
    *,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Pass stdin to the command.")
    ] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Run the command on this terminal; needs -i.")
    ] = False,
    env: Annotated[list[str] | None, setting_option("env")] = None,
    timeout: Annotated[str | None, setting_option("timeout")] = None,
) -> None:
    """Run a command in a standing sandbox.

    Its output and exit code are passed through. The command is recorded.
    """
    words = tuple(command[1:] if command[:1] == ["--"] else command)
    if command[0].startswith("-") and "--" in command[1:]:
        raise UsageError(
            f"{command[0]!r} follows the name, so it is part of the command; put options before {name!r}"
        )
    if tty and not (interactive and os.isatty(0) and os.isatty(1)):
        raise UsageError("--tty needs --interactive and a terminal; leave it out in scripts")
    variables = parse_pairs("env", env or ())
    limit_s = None if timeout is None else duration_of("--timeout", timeout)

    async def act() -> int:
        return await execute_in(name, words, variables, limit_s, interactive=interactive, tty=tty)

    raise typer.Exit(run_interruptible(act))


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="A path, or NAME:PATH for one inside.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="A path, or NAME:PATH for one inside.")],
    *,
    limit: Annotated[
        str, typer.Option("--limit", metavar="SIZE", help="Copy at most this much out of the sandbox.")
    ] = "4g",
) -> None:
    """Copy files into a standing sandbox, or out of it.

    Copies a file or a directory; links are skipped and reported.
    """
    from ringfence.config.units import parse_size

    outer, inner = _split(source), _split(target)
    if (outer is None) == (inner is None):
        raise UsageError(
            f"exactly one of {source!r} and {target!r} must be NAME:PATH; the other is a path on this machine"
        )
    try:
        limit_bytes = parse_size(limit)
    except ValueError as exc:
        raise UsageError(f"--limit: {exc}") from exc

    async def act() -> int:
        from ringfence.sandbox.supervisor.client import attach
        from ringfence.sandbox.supervisor.copy import copy_in, copy_out

        name, path = outer or inner or ("", "")
        async with attach(await find_standing(name)) as sandbox:
            if outer is not None:
                copied = await copy_out(sandbox, path, Path(target), limit_bytes=limit_bytes)
            else:
                copied = await copy_in(sandbox, Path(source), path)
        for skipped in copied.left_out:
            notify(f"skipped: {skipped}")
        return int(bool(copied.left_out))

    raise typer.Exit(run_interruptible(act))


def show(name: _Name) -> None:
    """Show a standing sandbox's state and policy as JSON."""
    from ringfence.sandbox.supervisor.client import read_living_state

    directory = run_interruptible(partial(find_standing, name))
    state = read_living_state(directory)
    document = {
        **row_of(directory),
        "sandbox_id": state.sandbox_id,
        "supervisor_pid": state.pid,
        "run": state.run_id,
        "created_at": state.created_at,
        "chosen_because": state.chosen_because,
        "idle_s": state.idle_s,
        "policy": state.policy,
        "facts": asdict(state.facts),
    }
    print_answer(document, (), json=True)


def stats(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", autocompletion=complete_sandboxes, help="Default: all."),
    ] = None,
    *,
    json: options.JsonOption = False,
) -> None:
    """Show the memory, CPU time and processes in use."""

    async def act() -> list[dict[str, Any]]:
        from ringfence.sandbox.supervisor.client import attach
        from ringfence.sandbox.supervisor.directory import list_directories, standing_root

        rows = []
        for name in names or [each.name for each in list_directories(standing_root()) if each.is_alive()]:
            async with attach(await find_standing(name)) as sandbox:
                use = await sandbox.stats()
            rows.append(
                {"name": name, "memory_bytes": use.memory_bytes, "cpu_s": use.cpu_s, "pids": use.pids}
            )
        return rows

    rows = run_interruptible(act)
    if json:
        typer.echo(safe_json(rows, indent=2))
        return
    for row in rows:
        memory_mib = row["memory_bytes"] / 1024**2
        typer.echo(
            f"{row['name']:<20}  {memory_mib:8.1f} MiB  {row['cpu_s']:9.2f} s  {row['pids']:4} processes"
        )


_Rule = Annotated[
    str, typer.Argument(metavar="WHAT", help="packages, open, or a host like *.example.com:8443.")
]


def allow_egress(name: _Name, what: _Rule) -> None:
    """Allow a running sandbox to reach an address.

    The change is recorded.
    """
    raise typer.Exit(run_interruptible(partial(change_egress_rule, name, "allow", what)))


def deny_egress(name: _Name, what: _Rule) -> None:
    """Deny a running sandbox access to an address.

    Open connections to the address are closed. The change is recorded.
    """
    raise typer.Exit(run_interruptible(partial(change_egress_rule, name, "deny", what)))


def forward(
    name: _Name,
    port: Annotated[int, typer.Argument(metavar="PORT", min=1, max=65_535, help="Port inside.")],
    *,
    host_port: Annotated[
        int,
        typer.Option(
            "--host-port", metavar="N", min=0, max=65_535, help="Port on this machine; 0 chooses a free one."
        ),
    ] = 0,
) -> None:
    """Serve a port of a standing sandbox on 127.0.0.1.

    Prints the address and serves it until Ctrl-C. The forward is recorded.
    """
    raise typer.Exit(run_interruptible(partial(serve_port, name, port, host_port)))


def remove(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", autocompletion=complete_sandboxes, help="The sandboxes."),
    ],
) -> None:
    """Stop standing sandboxes and seal their records.

    Everything inside is killed, and the work is exported.
    """

    async def act() -> None:
        for name in names:
            await remove_standing(name)

    run_interruptible(act)


def _split(word: str) -> tuple[str, str] | None:
    """Split `NAME:PATH`; None for a path on this machine."""
    from ringfence.sandbox.supervisor.directory import NAME_PATTERN

    name, colon, path = word.partition(":")
    return (name, path or ".") if colon and NAME_PATTERN.fullmatch(name) else None
