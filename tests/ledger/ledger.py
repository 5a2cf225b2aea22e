"""Reads and writes the ledger, and compares it with the tests in the tree."""

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("ledger.tsv")
HEADER = ("file", "test", "cases", "fate", "place", "sentence")
STANDS, KEPT, MERGED, DROPPED = "", "kept", "merged", "dropped"
FATES = (STANDS, KEPT, MERGED, DROPPED)


@dataclass(frozen=True)
class Row:
    """One test function of version 0.1."""

    file: str
    """Relative to the root of the repository."""
    test: str
    """Its name, after `Class::` where it is a method."""
    cases: int
    fate: str
    place: str
    """`file::test` of the test that makes the promise now; of a dropped one, the feature's name."""
    sentence: str
    """The first sentence of its docstring."""

    @property
    def node(self) -> str:
        """`file::test`, as pytest names it."""
        return f"{self.file}::{self.test}"


def read_ledger() -> list[Row]:
    """All rows, in the order of the file.

    Raises:
        ValueError: A row does not have six columns.
    """
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [_row(number, line) for number, line in enumerate(lines[1:], start=2)]


def write_ledger(rows: Iterable[Row]) -> None:
    """Write all rows, sorted by file and test."""
    ordered = sorted(rows, key=lambda row: (row.file, row.test))
    lines = ["\t".join(HEADER)]
    lines += ["\t".join((r.file, r.test, str(r.cases), r.fate, r.place, r.sentence)) for r in ordered]
    FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def vanished(rows: Iterable[Row]) -> list[Row]:
    """Rows without a mark whose test does not stand where it stood."""
    return [row for row in rows if row.fate == STANDS and row.test not in tests_in(row.file)]


def misplaced(rows: Iterable[Row]) -> list[Row]:
    """Rows marked as kept or merged that name a test which does not exist."""
    return [row for row in rows if row.fate in (KEPT, MERGED) and not _exists(row.place)]


def mark(rows: Iterable[Row], fate: str, place: str, prefixes: tuple[str, ...]) -> list[Row]:
    """Mark the vanished rows whose node starts with one of the prefixes; return all rows.

    Args:
        rows: All rows.
        fate: `kept`, `merged` or `dropped`.
        place: See `Row.place`. A kept test's place may be a file alone: the test keeps its name.
        prefixes: Beginnings of `file::test`.

    Raises:
        ValueError: No vanished test starts with a prefix, or the place is not there. A row that is marked already can
            be marked anew.
    """
    rows = list(rows)
    gone = {row.node for row in rows if row.test not in tests_in(row.file) and row.node.startswith(prefixes)}
    if not gone or not place:
        raise ValueError(
            f"no vanished test starts with {' or '.join(map(repr, prefixes))}, or the place is empty"
        )
    named = fate == DROPPED or "::" in place
    marked = [
        replace(row, fate=fate, place=place if named else f"{place}::{row.test}") if row.node in gone else row
        for row in rows
    ]
    if wrong := [row.place for row in misplaced(marked) if row.node in gone]:
        raise ValueError(f"there is no test {wrong[0]!r}")
    return marked


@cache
def tests_in(file: str) -> dict[str, str]:
    """The test functions of a file and the first sentence of each; empty if there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{name}": said for name, said in _functions(node.body)}
        else:
            found |= dict(_functions([node]))
    return found


def _functions(body: Iterable[ast.stmt]) -> list[tuple[str, str]]:
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(node.name, _sentence(node)) for node in functions if node.name.startswith("test")]


def _sentence(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    paragraph = (ast.get_docstring(node) or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def _exists(place: str) -> bool:
    file, _, test = place.partition("::")
    return test in tests_in(file)


def _row(number: int, line: str) -> Row:
    columns = line.split("\t")
    if len(columns) != len(HEADER):
        raise ValueError(
            f"{FILE.name}:{number}: {len(columns)} columns instead of {len(HEADER)}: {line[:80]!r}"
        )
    file, test, cases, fate, place, sentence = columns
    return Row(file, test, int(cases), fate, place, sentence)
