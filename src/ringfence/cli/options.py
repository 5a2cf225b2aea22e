"""Options and arguments that commands take, each declared once."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

PASS_ARGUMENTS = {"ignore_unknown_options": True, "allow_interspersed_args": False}
"""Of a command whose arguments are another command with options of its own."""
_Command = TypeVar("_Command", bound=Callable[..., None])


def with_options(**options: Any) -> Callable[[_Command], _Command]:
    """Give a command what Typer's `command` takes for it, as its class or context settings."""

    def declare(command: _Command) -> _Command:
        command.command_options = options  # type: ignore[attr-defined]  # read by the tree of commands
        return command

    return declare


RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The id of a run, the beginning of it or of its last eight digits; `last`: the newest on this workspace.",
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
AllOption = Annotated[bool, typer.Option("--all", help="With `last`: the newest run on any workspace.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most so many.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the end.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LogFormatOption = Annotated[
    Literal["text", "json"] | None,
    typer.Option("--log-format", help="How it says what happens; else `fleet.log_format`."),
]

WaitOption = Annotated[
    str, typer.Option("--wait", metavar="TIME", help="Wait so long for another run to leave the workspace.")
]
