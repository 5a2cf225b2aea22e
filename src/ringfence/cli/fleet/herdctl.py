"""Fleets of herdctl's on the command line: write them as files of ours, and trust them as they are."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import JsonOption
from ringfence.cli.output import counted, notify, print_answer, replace_file
from ringfence.errors import ExitCode, UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringfence.fleet.config.herdctl.note import Note


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

    Keys that cannot be converted are named on stderr, and are no failure. Exit code 0 once files are written,
    whatever is named; 78 if the files of herdctl are wrong, 2 if one is in the way.
    """
    from ringfence.config.yaml import read_document
    from ringfence.fleet.config.herdctl.bringing import bring, is_herdctl
    from ringfence.fleet.config.herdctl.checking import unset_variables
    from ringfence.fleet.config.herdctl.writing import texts_of
    from ringfence.fleet.config.loading import load_fleet

    document = read_document(file.absolute())
    if not is_herdctl(document):
        raise UsageError(
            f"{str(file)!r} is no fleet of herdctl's; name a file with `agents:` and their paths"
        )
    brought, notes = bring(document, environ=os.environ)
    unset = unset_variables(brought, os.environ)
    if not unset:
        load_fleet(document.file, environ=os.environ)  # what is wrong is told at its place in herdctl's files
    texts = texts_of(brought, notes, output or document.file.with_name("ringfence.yaml"))
    _refuse_in_the_way([each.file for each in brought.documents], texts, force=force)
    for target, text in reversed(texts.items()):
        replace_file(target, text)
    written = [str(target) for target in texts]
    rows = [_row(note) for note in notes.items]
    print_answer({"written": written, "notes": rows, "unset": unset}, written, json=json)
    report_notes(notes.items)
    if unset:
        notify(f"not checked as a whole, as these variables are not set: {', '.join(unset)}")


def report_notes(notes: "Iterable[Note]") -> None:
    """Name what does not come over, a line each."""
    for note in notes:
        notify(str(note))


def report_note_count(notes: "Iterable[Note]") -> None:
    """Say how many keys do not come over, and who names them."""
    losses = sum(note.kind != "no_effect" for note in notes)
    if losses:
        notify(
            f"of herdctl's keys {losses} do not come over as they stand; `ringfence fleet validate` names them"
        )


def trust_herdctl(file: Path, *, yes: bool) -> bool:
    """Trust a fleet of herdctl's, with every file that it reads; nothing happens if it is none.

    Returns:
        Whether it is one.
    """
    from ringfence.config.trust import digest_of, trust_content
    from ringfence.config.yaml import read_document
    from ringfence.fleet.config.herdctl.bringing import bring, is_herdctl

    document = read_document(file)
    if not is_herdctl(document):
        return False
    brought, _ = bring(document, environ=os.environ)
    for each in brought.documents:
        typer.echo(f"file    {visible(str(each.file), one_line=True)}")
        typer.echo(f"sha256  {digest_of(each.content)}")
    agents = sum(len(level.agents) for _, level in brought.top.walk())
    typer.echo(
        f"makes   {counted(agents, 'agent')} of herdctl's; `ringfence fleet show --file` says what each may do"
    )
    if not yes and not typer.confirm("Trust these files?", err=True):
        notify("not trusted")
        raise typer.Exit(ExitCode.FAILED)
    for each in brought.documents:
        trust_content(each.file, each.content)
    notify("trusted; any change of a file ends that")
    return True


def _refuse_in_the_way(read: list[Path], texts: dict[Path, str], *, force: bool) -> None:
    from ringfence.fleet.config.herdctl.bringing import FILE_NAMES

    sources = {file.resolve() for file in read}
    for target in texts:
        if target.resolve() in sources or target.name in FILE_NAMES:
            raise UsageError(f"{str(target)!r} would be herdctl's own file; write to another with --output")
        if os.path.lexists(target) and not force:
            raise UsageError(f"{str(target)!r} is there already; overwrite it with --force")


def _row(note: "Note") -> dict[str, object]:
    origin = note.origin
    place = {"file": str(origin.file), "line": origin.line, "column": origin.column}
    return {"key": note.key, "kind": note.kind, **place, "reason": note.reason}
