"""Prints what commands find out: lines for people or JSON for programs on stdout, talk on stderr."""

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
"""Of the JSON that commands print."""


def print_answer(document: Mapping[str, Any], lines: Iterable[str], *, json: bool) -> None:
    """Print what a command found out.

    Args:
        document: All of it, for programs.
        lines: The same for people; nothing in them need be escaped.
        json: Whether the document is printed, and not the lines.
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
    """Print a document as a line of JSON, at once."""
    sys.stdout.write(f"{safe_json({'schema_version': _SCHEMA_VERSION, **document})}\n")
    sys.stdout.flush()


class RecordPrinter:
    """Prints one record after the other.

    Args:
        json: As NDJSON.
    """

    def __init__(self, *, json: bool) -> None:
        from rich.console import Console

        self._json = json
        self._console = Console(highlight=False, markup=False, emoji=False)

    def show(self, record: Any) -> None:
        """Print one."""
        from ringfence.cli.render.transcript import print_record
        from ringfence.journal import as_json

        if self._json:
            typer.echo(safe_json(as_json(record)))
        else:
            print_record(self._console, record)


def note(line: str) -> None:
    """A line on stderr, as it is."""
    typer.echo(visible(line, one_line=True), err=True)


def notify(line: str) -> None:
    """A line on stderr; nothing happens if that is gone."""
    with suppress(OSError):  # a terminal that was closed
        sys.stderr.write(f"ringfence: {visible(line, one_line=True)}\n")


def replace_file(file: Path, text: str) -> None:
    """Put a file with this text there, in the place of whatever is.

    Raises:
        UsageError: It cannot be written.
    """
    from ringfence import filesystem

    # Never opened for writing where it is: a hostile repository may have put a link to ~/.bashrc there.
    try:
        filesystem.replace_file(file, text.encode(), mode=0o644)
    except OSError as exc:
        raise UsageError(f"cannot write {str(file)!r}: {exc.strerror}; choose another directory") from exc


def counted(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
