"""The ledger on the command line: `python -m tests.ledger [missing | generate COLLECTED | mark FATE PLACE PREFIX...]`.

Without an argument: how many tests and cases have each fate, by package. `missing` lists tests that vanished without a
mark, and marks that name no test. `mark` sets fate and place of vanished tests whose `file::test` starts with a prefix.
`generate` writes the ledger anew from the output of `pytest --collect-only -q`; all marks are lost.
"""

import sys
from collections import Counter
from pathlib import Path

from tests.ledger.ledger import (
    FATES,
    STANDS,
    Row,
    mark,
    misplaced,
    read_ledger,
    tests_in,
    vanished,
    write_ledger,
)


def main(arguments: list[str]) -> int:
    """Do what the arguments say; 2 if they are wrong."""
    match arguments:
        case []:
            _print_fates(read_ledger())
        case ["-h" | "--help"]:
            print(__doc__)
        case ["missing"]:
            rows = read_ledger()
            for row in (*vanished(rows), *misplaced(rows)):
                print(row.node, row.fate, row.place, row.sentence, sep="\t")
        case ["generate", collected]:
            write_ledger(_generate(Path(collected)))
        case ["mark", fate, place, *prefixes] if fate in FATES and prefixes:
            try:
                write_ledger(mark(read_ledger(), fate, place, tuple(prefixes)))
            except ValueError as exc:
                print(exc, file=sys.stderr)
                return 2
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def _generate(collected: Path) -> list[Row]:
    nodes = Counter(line.partition("[")[0] for line in collected.read_text().splitlines() if "::" in line)
    rows = []
    for node, cases in nodes.items():
        file, _, test = node.partition("::")
        if test in tests_in(file):  # the contract checks of inspect_ai are collected, too, but are not ours
            rows.append(Row(file, test, cases, STANDS, "", tests_in(file)[test]))
    return rows


def _print_fates(rows: list[Row]) -> None:
    packages = sorted({_package(row) for row in rows})
    print(
        f"{'package':<14} {'tests':>7} {'cases':>7} " + " ".join(f"{fate or 'stands':>8}" for fate in FATES)
    )
    for package in (*packages, "all"):
        chosen = [row for row in rows if package in ("all", _package(row))]
        fates = Counter(row.fate for row in chosen)
        counts = " ".join(f"{fates[fate]:>8}" for fate in FATES)
        print(f"{package:<14} {len(chosen):>7} {sum(row.cases for row in chosen):>7} {counts}")


def _package(row: Row) -> str:
    parts = Path(row.file).parts
    return parts[1] if len(parts) > 2 else "(top)"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
