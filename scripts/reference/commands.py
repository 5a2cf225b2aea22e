"""docs/reference/commands.md."""

from collections.abc import Iterator

import click
import typer.main

from reference.markdown import cell, code, table
from ringfence.cli.main import app

_HEAD = """\
# Commands

What they print on stdout is data, on stderr talk. Exit codes: [exit-codes.md](exit-codes.md). `RUN` is a
run's id, the beginning of one that is clear, or `last`.
"""


def page() -> str:
    """The page."""
    root = typer.main.get_command(app)
    context = click.Context(root, info_name="ringfence")
    parts = [_HEAD, table(("command", ""), _overview(root, context))]
    for path, command in _leaves(root, context):
        parts += [f"## {path.command_path}\n", f"```\n{_usage(command, path)}\n```\n", f"{_help(command)}\n"]
        parts += _parameters(command, path)
    return "\n".join(parts)


def _overview(root: click.Command, context: click.Context) -> list[tuple[str, str]]:
    return [
        (f"[`{path.command_path}`](#{path.command_path.replace(' ', '-')})", _help(command).split("\n\n")[0])
        for path, command in _leaves(root, context)
    ]


def _leaves(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    if not hasattr(command, "list_commands"):
        yield context, command
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _leaves(below, click.Context(below, info_name=name, parent=context))


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _help(command: click.Command) -> str:
    # Text as the docstring has it; \f and what follows it is for programmers.
    return (command.help or "").split("\f")[0].strip()


def _parameters(command: click.Command, context: click.Context) -> list[str]:
    records = []
    for parameter in command.get_params(context):
        record = _record(parameter, context)
        if record is not None and "--help" not in record[0]:
            records.append((code(record[0]), record[1]))
    return [table(("option", "meaning"), records)] if records else []


def _record(parameter: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    if isinstance(parameter, click.Argument) or parameter.param_type_name == "argument":
        text = getattr(parameter, "help", None)
        return (parameter.make_metavar(context), cell(text)) if text else None
    record = parameter.get_help_record(context)
    return (record[0], cell(record[1])) if record else None
