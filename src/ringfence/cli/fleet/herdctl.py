"""Converts herdctl fleets to Ringfence files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import counted, notify, print_answer, replace_file
from ringfence.cli.settings import check_file
from ringfence.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.fleet.herdctl.conversion import Note


def import_fleet(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The fleet's herdctl.yaml.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT", help="File to write; default: ringfence.yaml beside FILE."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    json: JsonOption = False,
) -> None:
    """Convert a herdctl fleet to a ringfence.yaml.

    Reports keys that cannot be converted on stderr and still exits 0. Exits 78 if herdctl's files are not valid, and 2
    if a file to write exists already.
    """
    from ringfence.config.yaml import read_document
    from ringfence.fleet.config.loader import load_fleet
    from ringfence.fleet.herdctl.importer import convert, is_herdctl
    from ringfence.fleet.herdctl.writer import render_files

    document = read_document(check_file(file).absolute())
    if not is_herdctl(document):
        raise UsageError(f"{str(file)!r} is not a herdctl fleet; name a file with `agents:` and their paths")
    conversion = convert(document, environ=os.environ)
    unset = conversion.unset_variables(os.environ)
    if not unset:
        load_fleet(document.file, environ=os.environ)  # reports errors at their place in herdctl's files
    texts = render_files(conversion, output or document.file.with_name("ringfence.yaml"))
    _check_targets_free([source.file for source in conversion.documents], texts, force=force)
    for target, text in reversed(texts.items()):
        replace_file(target, text)
    written = [str(target) for target in texts]
    rows = [_row(note) for note in conversion.notes]
    print_answer({"written": written, "notes": rows, "unset": unset}, written, json=json)
    report_notes(conversion.notes)
    if unset:
        notify(
            f"the converted fleet was not validated, because these variables are not set: {', '.join(unset)}"
        )


def report_notes(notes: "Iterable[Note]") -> None:
    """Print a line for each key that cannot be converted."""
    for note in notes:
        notify(str(note))


def report_note_count(notes: "Iterable[Note]") -> None:
    """Print how many keys cannot be converted, and the command that lists them."""
    count = sum(note.kind != "no_effect" for note in notes)
    if count:
        notify(
            f"{counted(count, 'herdctl key')} cannot be converted unchanged; `ringfence fleet validate` lists them"
        )


def _check_targets_free(read: list[Path], texts: dict[Path, str], *, force: bool) -> None:
    from ringfence.fleet.herdctl.importer import FILE_NAMES

    sources = {file.resolve() for file in read}
    for target in texts:
        if target.resolve() in sources or target.name in FILE_NAMES:
            raise UsageError(
                f"{str(target)!r} is one of herdctl's own files; write to another one with --output"
            )
        if os.path.lexists(target) and not force:
            raise UsageError(f"{str(target)!r} exists already; overwrite it with --force")


def _row(note: "Note") -> dict[str, object]:
    origin = note.origin
    position = {"file": str(origin.file), "line": origin.line, "column": origin.column}
    return {"key": note.key, "kind": note.kind, **position, "reason": note.reason}
