"""Records of a journal as they are read on a terminal, or as JSON."""

from typing import Any

import typer

from ringfence.cli.escape import safe_json


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
        from ringfence.cli.transcript import print_record
        from ringfence.journal import as_json

        if self._json:
            typer.echo(safe_json(as_json(record)))
        else:
            print_record(self._console, record)
