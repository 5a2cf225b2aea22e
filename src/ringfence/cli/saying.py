"""What a person should know, beside what a command prints."""

import sys
from contextlib import suppress

import typer

from ringfence.escape import visible


def note(line: str) -> None:
    """A line on stderr, as it is."""
    typer.echo(visible(line, one_line=True), err=True)


def say(line: str) -> None:
    """A line on stderr; nothing happens if that is gone."""
    with suppress(OSError):  # a terminal that was closed
        sys.stderr.write(f"ringfence: {visible(line, one_line=True)}\n")
