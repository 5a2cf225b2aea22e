"""What commands print: lines for people, or JSON for programs."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

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
