"""`python -m kitty show FILE`."""

import argparse
import sys
from pathlib import Path

from kitty import report, storage
from kitty.errors import KittyError


def main(arguments, out=None):
    """Do what `arguments` say; returns the exit code: 0, or 1 with a line on stderr."""
    out = out or sys.stdout
    given = _parser().parse_args(arguments)
    try:
        ledger = storage.read(Path(given.file).read_text(encoding="utf-8").splitlines())
        print(given.does(ledger), file=out)
    except (KittyError, OSError) as error:
        print(f"kitty: {error}", file=sys.stderr)
        return 1
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="kitty", description="Who paid what for the group.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add(commands, "show", report.overview, "what each member paid")
    return parser


def _add(commands, name, does, about):
    command = commands.add_parser(name, help=about)
    command.add_argument("file", help="the ledger, a CSV file")
    command.set_defaults(does=does)
