"""`ringfence audit`: list, read, verify, export and follow the records of runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, command_group
from ringfence.cli.plural import counted
from ringfence.cli.printing import RecordPrinter
from ringfence.errors import ExitCode, RecordError, UsageError
from ringfence.escape import safe_json, visible

if TYPE_CHECKING:
    from ringfence.journal import RunSummary, Verification

audit_app = command_group("audit", "List, read, verify, export and follow the records of runs.")

_Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run id, the beginning of one or of its last eight digits, or 'last': the newest on this workspace.",
    ),
]
_WORDS = {"sealed": "sealed", "open": "open end", "truncated": "TRUNCATED", "broken": "BROKEN"}


@audit_app.command("ls")
def list_(
    *,
    json: JsonOption = False,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="Show so many of the newest.")] = 20,
) -> None:
    """List runs, the newest first. Whether a seal is right, `audit verify` says."""
    import msgspec

    from ringfence.journal import list_runs

    runs = list_runs(number)
    if json:
        typer.echo(safe_json(msgspec.to_builtins(runs), indent=2))
        return
    if not runs:
        typer.echo("no runs yet; `ringfence run` makes one", err=True)
    from ringfence.cli.console import open_console, print_table

    header = ("run", "state", "record", "time", "model", "task")
    print_table(open_console(), header, [_run_row(run) for run in runs])


@audit_app.command()
def show(run: _Run, *, json: JsonOption = False) -> None:
    """Print what happened in a run, in order. Text of agents is shown escaped."""
    from ringfence.cli.chosen import chosen_run
    from ringfence.journal import read

    path = chosen_run(run)
    _warn_if_damaged(path)
    printer = RecordPrinter(json=json)
    for record in read(path):
        printer.show(record)


@audit_app.command()
def verify(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN|FILE", help="A run, or the path of a journal (with a '/').")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Verify all runs.")] = False,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", metavar="FILE", help="Trust this public key (PEM) instead of this machine's."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check that a record is what was written, all its files. Exit code 0 sealed, 3 open end, 1 broken or truncated."""
    from ringfence.journal import Verification
    from ringfence.journal import verify as verify_journal
    from ringfence.journal.keys import read_public_key
    from ringfence.journal.record import JOURNAL_NAME

    if every == (run is not None):
        raise UsageError("say what to verify: one RUN or FILE, or --all")
    keys = None if key is None else [read_public_key(path) for path in key]
    found = []
    for path in _journals(run):
        try:
            found.append(verify_journal(path, public_keys=keys))
        except RecordError as exc:  # of one run among all, that says nothing of the others
            if not every:
                raise
            found.append(Verification(path / JOURNAL_NAME, "broken", path.name, 0, reason=str(exc)))
    if json:
        documents = [_verification_document(one) for one in found]
        typer.echo(safe_json(documents if every else documents[0], indent=2))
    else:
        for one in found:
            typer.echo(_verification_line(one))
    if every:
        _report_absent({one.path.parent.name for one in found})
    raise typer.Exit(_verification_code(found))


@audit_app.command()
def export(
    run: _Run,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write there; default: stdout.")
    ] = None,
) -> None:
    """Write the session as one JSON document. Every message, every tool call with its result."""
    import msgspec

    from ringfence.cli.chosen import chosen_run
    from ringfence.journal import export as export_session

    path = chosen_run(run)
    _warn_if_damaged(path)
    document = export_session(path)
    if output is None or str(output) == "-":
        typer.echo(safe_json(msgspec.to_builtins(document), indent=2))
        return
    document.write(output)
    typer.echo(f"wrote {str(output)!r}", err=True)


@audit_app.command()
def follow(run: _Run, *, json: JsonOption = False) -> None:
    """Print what happens in a run as it happens; ends with the run."""
    import anyio

    from ringfence.cli.chosen import chosen_run
    from ringfence.journal import follow as follow_journal

    printer = RecordPrinter(json=json)
    directory = chosen_run(run)

    async def print_all() -> None:
        async for record in follow_journal(directory):
            printer.show(record)

    anyio.run(print_all)


def _run_row(run: "RunSummary") -> tuple[str, ...]:
    duration = "" if run.duration_s is None else f"{run.duration_s:>7.1f} s"
    what = run.prompt or run.reason
    seal = "sealed (unchecked)" if run.is_sealed else "open"
    return run.id, run.state, seal, duration, run.model, what


def _warn_if_damaged(path: Path) -> None:
    """Say so before a record is shown that is not what was written."""
    from ringfence.journal import verify as verify_journal

    found = verify_journal(path)
    if found.status in ("broken", "truncated"):
        where = "" if found.bad_line is None else f" at line {found.bad_line}"
        line = f"this record is {_WORDS[found.status]}{where}: {found.reason}; do not rely on what it says"
        typer.echo(f"ringfence: WARNING: {visible(line, one_line=True)}", err=True)


def _journals(run: str | None) -> list[Path]:
    from ringfence.cli.chosen import chosen_run
    from ringfence.journal import run_dirs

    if run is None:
        return run_dirs()
    return [Path(run)] if "/" in run else [chosen_run(run)]


def _report_absent(present: set[str]) -> None:
    """Say on stderr how many runs the index of heads knows that are not here."""
    from ringfence.journal.heads import known_runs

    absent = known_runs() - present
    if absent:
        typer.echo(
            f"not here any more: {counted(len(absent), 'run')} of the index, removed by `ringfence gc` or by hand",
            err=True,
        )


def _verification_line(found: "Verification") -> str:
    parts = [_WORDS[found.status], found.run_id or str(found.path), counted(found.events, "event")]
    if found.bad_line is not None:
        parts.append(f"line {found.bad_line}: {found.reason}")
    elif found.reason is not None:
        parts.append(found.reason)
    if found.ok:
        parts.append(f"signed by key {found.signer} at {found.sealed_at}")
    return visible("  ".join(parts), one_line=True)


def _verification_document(found: "Verification") -> dict[str, Any]:
    import dataclasses

    return {**dataclasses.asdict(found), "path": str(found.path)}


def _verification_code(found: "list[Verification]") -> ExitCode:
    states = {one.status for one in found}
    if states & {"broken", "truncated"}:
        return ExitCode.FAILED
    return ExitCode.CHECK_RED if "open" in states else ExitCode.OK
