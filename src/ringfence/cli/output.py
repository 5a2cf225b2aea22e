"""Prints the results of commands on stdout, as lines for people or JSON for programs, and messages on stderr."""

import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ringfence.errors import UsageError
from ringfence.escape import safe_json, visible

if TYPE_CHECKING:
    from ringfence.events import Event

_SCHEMA_VERSION = 1
"""Version of the JSON that commands print."""


def print_answer(document: Mapping[str, Any], lines: Iterable[str], *, json: bool) -> None:
    """Print the result of a command.

    Args:
        document: The result for programs.
        lines: The result for people; this function escapes them.
        json: Whether to print the document instead of the lines.
    """
    if json:
        typer.echo(safe_json({"schema_version": _SCHEMA_VERSION, **document}, indent=2))
        return
    for line in lines:
        typer.echo(visible(line, one_line=True))


async def print_event(event: "Event") -> None:
    """Print one event as a line of JSON; `event` is its name."""
    import msgspec

    print_json_line(msgspec.to_builtins(event))


def print_json_line(document: Mapping[str, Any]) -> None:
    """Print a document as a line of JSON, and flush it."""
    sys.stdout.write(f"{safe_json({'schema_version': _SCHEMA_VERSION, **document})}\n")
    sys.stdout.flush()


class RecordPrinter:
    """Prints records in order.

    Args:
        json: Whether to print NDJSON.
    """

    def __init__(self, *, json: bool) -> None:
        from ringfence.cli.render.console import open_console

        self._json = json
        self._console = open_console()

    def show(self, record: Any) -> None:
        """Print a record."""
        from ringfence.cli.render.transcript import print_event
        from ringfence.journal import as_json

        if self._json:
            typer.echo(safe_json(as_json(record)))
        else:
            print_event(self._console, record.event, record.time)


def note(line: str) -> None:
    """Print a line on stderr, escaped and without a prefix."""
    typer.echo(visible(line, one_line=True), err=True)


def notify(line: str) -> None:
    """Print a message on stderr; ignore a closed stderr."""
    with suppress(OSError):  # the terminal was closed
        sys.stderr.write(f"ringfence: {visible(line, one_line=True)}\n")


def confirm(question: str, *, option: str = "--yes") -> bool:
    """Ask a question that is answered with yes or no.

    Args:
        question: The question, without the choice of answers.
        option: The option that answers it with yes.

    Raises:
        UsageError: Standard input has ended, so no answer is possible.
    """
    try:
        return typer.confirm(question, err=True)
    except typer.Abort as exc:
        if not isinstance(exc.__context__, EOFError):  # Ctrl-C
            raise
        typer.echo("", err=True)
        raise UsageError(
            f"nobody answered {question!r}, because standard input has ended; add {option}, or run the command on a "
            "terminal"
        ) from None


def replace_file(file: Path, text: str) -> None:
    """Write a text file, replacing any file at its path.

    Raises:
        UsageError: The file cannot be written.
    """
    from ringfence import filesystem

    # The path is never opened for writing: a hostile repository may hold a link to ~/.bashrc there.
    try:
        filesystem.replace_file(file, text.encode(), mode=0o644)
    except OSError as exc:
        raise UsageError(f"cannot write {str(file)!r}: {exc.strerror}; choose another directory") from exc


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: `1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
