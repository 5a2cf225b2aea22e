"""Options and arguments that commands take, each declared once."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def command_group(name: str, help_text: str) -> typer.Typer:
    """A command with commands of its own; without one of them it prints its help."""
    return typer.Typer(name=name, help=help_text, no_args_is_help=True, rich_markup_mode=None)


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run id, the beginning of one or of its last eight digits, or 'last': the newest here that changed "
        "something.",
    ),
]
WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace",
        "-C",
        metavar="DIR",
        show_default=False,
        help="Directory to work on; default: this one.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LogFormatOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log-format", help="How it says what happens; else `fleet.log_format`."),
]

WaitOption = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="Wait so long for another run to leave the workspace.")
]
