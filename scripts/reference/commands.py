"""docs/reference/commands.md."""

from collections.abc import Iterator
from typing import Any

import typer
import typer.main

from reference.markdown import cell, code, table
from ringfence.cli.app import app

# Typer brings a click of its own and does not promise its types; these stand for them.
Command = Any
Parameter = Any

_HEAD = """\
# Commands

Commands print data on stdout and everything else on stderr. Exit codes: [exit-codes.md](exit-codes.md). `RUN` is a run's
id, an unambiguous beginning of one, or `last`, which is the default: the newest run that opened a sandbox on the
workspace that the current directory is in. A run that was refused before that is named by its id, which `runs ls` lists.
`diff`, `apply` and `undo` say on stderr which run they took. `-n` is `--limit`, `-f` is `--follow` and `-C` is
`--workspace` everywhere.
"""


def page() -> str:
    """The page."""
    root, context = _root()
    parts = [_HEAD, table(("command", ""), overview())]
    for path, command in _leaves(root, context):
        parts += [f"## {path.command_path}\n", f"```\n{_usage(command, path)}\n```\n", f"{_help(command)}\n"]
        parts += _parameters(command, path)
    return "\n".join(parts)


def _root() -> tuple[Command, typer.Context]:
    root = typer.main.get_command(app)
    return root, typer.Context(root, info_name="ringfence")


def overview() -> list[tuple[str, str]]:
    """All commands, each with a link to what is said of it, and its first sentence."""
    root, context = _root()
    return [
        (f"[`{path.command_path}`](#{path.command_path.replace(' ', '-')})", _help(command).split("\n\n")[0])
        for path, command in _leaves(root, context)
    ]


def _leaves(command: Command, context: typer.Context) -> Iterator[tuple[typer.Context, Command]]:
    if not hasattr(command, "list_commands"):
        yield context, command
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _leaves(below, typer.Context(below, info_name=name, parent=context))


def _usage(command: Command, context: typer.Context) -> str:
    pieces = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    return pieces.replace("[[", "[").replace("]]", "]").replace("{", "").replace("}...", "").replace("}", "")


def _help(command: Command) -> str:
    # Text as the docstring has it; \f and what follows it is for programmers.
    return (command.help or "").split("\f")[0].strip()


def _parameters(command: Command, context: typer.Context) -> list[str]:
    records = []
    for parameter in command.get_params(context):
        record = _record(parameter, context)
        if record is not None and "--help" not in record[0]:
            records.append((code(record[0]), record[1]))
    return [table(("option", "meaning"), records)] if records else []


def _record(parameter: Parameter, context: typer.Context) -> tuple[str, str] | None:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar), cell(parameter.help or "")
    record = parameter.get_help_record(context)
    return (record[0], cell(record[1])) if record else None
