"""`ringfence runs`: list, show, verify, export and remove the records of runs."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.completion import complete_runs
from ringfence.cli.options import AllOption, FollowOption, JsonOption, LimitOption, RunArgument
from ringfence.cli.output import RecordPrinter, confirm, counted, note, print_answer
from ringfence.cli.settings import check_file, parse_pairs
from ringfence.errors import ExitCode, InfrastructureFault, UsageError
from ringfence.escape import safe_json, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ringfence.journal import Finding, RunSummary, StateVerification, Verification
    from ringfence.journal.outcome import RunOutcome

_STATUS_TEXT = {"sealed": "sealed", "open": "killed, no seal", "truncated": "TRUNCATED", "broken": "BROKEN"}
_PLACE_WIDTH = 16


def ls(
    *,
    limit: LimitOption = 20,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Only runs with this label; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List runs, the newest first.

    A run whose record has no seal is marked. The list does not check seals; `ringfence runs verify` does.
    """
    from itertools import islice

    import msgspec

    from ringfence.journal import run_dirs, summarize

    wanted = parse_pairs("label", label or ())
    paths = run_dirs()
    summaries = (summarize(path) for path in paths)
    selected = (run for run in summaries if wanted.items() <= run.labels.items())
    runs = list(islice(selected, limit))
    if json:
        typer.echo(safe_json(msgspec.to_builtins(runs), indent=2))
        return
    if not runs:
        note("no runs with these labels" if wanted else "no runs yet; `ringfence run` creates one")
    from ringfence.cli.render.console import open_console, print_table

    console = open_console()
    header = ("run", "state", "time", "workspace", "task")
    rows = [_run_row(run, is_short=console.is_terminal) for run in runs]
    print_table(console, header, rows, is_clipped=True)
    if not wanted and len(paths) > limit:
        note(f"{limit} of {len(paths)} runs; `-n {len(paths)}` shows all")
    elif wanted and next(selected, None) is not None:
        note(f"the newest {counted(limit, 'run')} with these labels; `-n {2 * limit}` shows more")


def show(run: RunArgument = "last", *, everywhere: AllOption = False, json: JsonOption = False) -> None:
    """Show how a run ended and what it changed and cost."""
    from ringfence.cli.runs.reference import chosen_run
    from ringfence.journal.outcome import describe_run, read_outcome

    path = chosen_run(run, everywhere=everywhere)
    _warn_if_damaged(path)
    found = read_outcome(path)
    document = describe_run(path, found)
    print_answer(document, _summary_lines(document, found, path), json=json)


def logs(
    run: RunArgument = "last",
    *,
    follow: FollowOption = False,
    everywhere: AllOption = False,
    json: JsonOption = False,
) -> None:
    """Print the events of a run, in order.

    Text of agents is shown escaped.
    """
    from ringfence.cli.runs.reference import chosen_run
    from ringfence.journal import read

    path = chosen_run(run, everywhere=everywhere)
    printer = RecordPrinter(json=json)
    if follow:
        _follow(path, printer)
        return
    _warn_if_damaged(path)
    for record in read(path):
        printer.show(record)


def rm(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", autocompletion=complete_runs, help="Ids of runs, or `last`."),
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove records of runs that have ended.

    Their private copies and checkpoints are removed, too: changes that were not applied are lost. A run that has not
    ended is refused, and so is the run of a fleet's job, which `ringfence job rm` and the fleet's retention remove.
    """
    import anyio

    from ringfence.cli.runs.reference import chosen_run
    from ringfence.journal import summarize

    paths = list(dict.fromkeys(chosen_run(each) for each in runs))
    names = [path.name for path in paths]
    if not yes:
        for path in paths:
            note(f"{path.name}  {summarize(path).prompt}".rstrip())
        if not confirm(f"Remove {counted(len(paths), 'record')}?"):
            raise typer.Exit(ExitCode.FAILED)
    anyio.run(_remove, paths)
    print_answer({"removed": names}, names, json=json)


def stop(run: RunArgument = "last", *, everywhere: AllOption = False) -> None:
    """Stop a run that is running in another terminal.

    It ends as cancelled, and its work so far is kept. A second call while it ends stops it immediately.
    """
    import anyio

    from ringfence.cli.runs.reference import chosen_run, how_to_stop
    from ringfence.job.run_process import terminate, wait_for_end
    from ringfence.journal import is_alive, summarize

    path = chosen_run(run, everywhere=everywhere)
    if not is_alive(path):
        raise UsageError(f"run {path.name!r} has ended; `ringfence runs show {path.name[-8:]}` shows how")
    if not terminate(path):
        raise UsageError(f"run {path.name!r} cannot be stopped by this command; {how_to_stop(path)}")
    if not anyio.run(wait_for_end, path):
        raise InfrastructureFault(
            f"run {path.name!r} has not ended yet; `ringfence runs stop {path.name[-8:]}` again stops it immediately"
        )
    ended = summarize(path)
    note(f"{ended.state}: {ended.reason}; record: {path}")


def verify(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|FILE",
            autocompletion=complete_runs,
            help="A run, or the path of a journal (with a '/'); default: last.",
            show_default=False,
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Verify all runs, and that none is missing.")] = False,
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor",
            metavar="SHA256",
            help="With --all: a head of the chain that you kept elsewhere, which must be in it.",
        ),
    ] = None,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", metavar="FILE", help="Trust this public key (PEM) instead of this machine's."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Verify that a record is complete and unchanged.

    Checks the journal and all files beside it. Exit code 0: sealed; 3: no seal, as the run is still running or was
    killed; 1: broken, truncated or missing.
    """
    from ringfence.journal import RECORD_LIMITS, STATE_LIMITS, describe_verification, verify_all, verify_run
    from ringfence.journal.seal import read_public_key

    if every and run is not None:
        raise UsageError(f"--all verifies all runs; leave out {run!r}, or --all")
    if anchor is not None and not every:
        raise UsageError("--anchor is a head of the chain of all runs; give --all with it")
    keys = None if key is None else [read_public_key(check_file(path, "--key")) for path in key]
    limits: tuple[str, ...] = RECORD_LIMITS
    findings: tuple[Finding, ...] = ()
    chain = ""
    if every:
        state = verify_all(public_keys=keys, anchor=anchor)
        document: Any = _state_document(state)
        found, findings, limits = state.runs, state.findings, STATE_LIMITS
        chain = f"entries in the chain of records: {state.entries:,}; its head: {state.head or 'none'}"
    else:
        found = (verify_run(_journal_of(run or "last"), public_keys=keys),)
        document = describe_verification(found[0])
    print_answer(document, [_verification_line(one) for one in found], json=json)
    of_runs = (finding for one in found for finding in one.findings if not finding.is_fault)
    messages = [f"{finding.kind}: {finding.message}" for finding in (*of_runs, *findings)]
    messages += [chain] if chain else []
    for line in () if json else (*messages, *(f"not proved: {limit}" for limit in limits)):
        note(line)
    raise typer.Exit(ExitCode.FAILED if any(one.is_fault for one in findings) else _verification_code(found))


def export(
    run: RunArgument = "last",
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write; default: stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    everywhere: AllOption = False,
) -> None:
    """Export a run's session as one JSON document.

    It holds every message, and every tool call with its result.
    """
    import msgspec

    from ringfence.cli.runs.reference import chosen_run
    from ringfence.journal import export as export_session

    file = None if output is None or str(output) == "-" else output
    if force and file is None:
        raise UsageError("--force overwrites the file of --output; name one, or leave out --force")
    if file is not None and not force and os.path.lexists(file):
        raise UsageError(f"{str(file)!r} exists already; overwrite it with --force, or name another file")
    path = chosen_run(run, everywhere=everywhere)
    _warn_if_damaged(path)
    document = export_session(path)
    if file is None:
        typer.echo(safe_json(msgspec.to_builtins(document), indent=2))
        return
    document.write(file)
    typer.echo(f"wrote {str(file)!r}", err=True)


def _follow(directory: Path, printer: RecordPrinter) -> None:
    import anyio

    from ringfence.journal import follow

    async def print_all() -> None:
        async for record in follow(directory):
            printer.show(record)

    anyio.run(print_all)


async def _remove(paths: "Sequence[Path]") -> None:
    from ringfence.cli.gc import without_fleet_runs
    from ringfence.cli.output import notify
    from ringfence.cli.runs.reference import how_to_stop
    from ringfence.job.garbage_collection import remove_runs
    from ringfence.job.interrupted_runs import recover_runs
    from ringfence.journal import is_alive

    store = await recover_runs(notify)
    for path in paths:
        if is_alive(path):
            raise UsageError(f"run {path.name!r} is still running; {how_to_stop(path)}")
    others = await without_fleet_runs(list(paths))
    if len(others) < len(paths):
        theirs = next(path for path in paths if path not in others)
        raise UsageError(
            f"run {theirs.name!r} belongs to a job of the fleet; `ringfence job rm` removes that"
        )
    await remove_runs(list(paths), store, by="runs rm")


def _summary_lines(run: "Mapping[str, Any]", found: "RunOutcome", path: Path) -> "Iterator[str]":
    from ringfence.cli.render.summary import work_lines

    yield f"run:        {run['id']}"
    if run["prompt"]:
        yield f"task:       {run['prompt']}"
    yield f"state:      {run['state']}" + (f": {run['reason']}" if run["reason"] else "")
    for name in ("workspace", "runtime", "model"):
        if run[name]:
            yield f"{name + ':':<11} {run[name]}"
    if run["started_at"]:
        took = "" if run["duration_s"] is None else f", took {run['duration_s']:.1f} s"
        yield f"started:    {run['started_at']}{took}"
    yield from _end_lines(found)
    if run["labels"]:
        yield "labels:     " + ", ".join(f"{key}={value}" for key, value in run["labels"].items())
    if found.work is not None:
        for line, _style in work_lines(found.work, path):
            yield f"changes:    {line}"
    yield f"record:     {path}, {'sealed' if run['is_sealed'] else 'not sealed'}"
    yield f"files:      {', '.join(run['files'])}"
    yield f"events:     ringfence runs logs {run['id'][-8:]}"


def _end_lines(found: "RunOutcome") -> "Iterator[str]":
    from ringfence.cli.render.summary import usage_text

    if found.ended is not None and found.ended.turns:
        yield f"used:       {usage_text(found.ended)}"
    if found.command is not None:
        yield f"command:    exit code {found.command.exit_code}"
    if found.check is not None:
        yield f"check:      exit code {found.check.exit_code}: {found.check.command}"


def _run_row(run: "RunSummary", *, is_short: bool) -> tuple[str, ...]:
    has_ended = run.duration_s is not None
    state = run.state if run.is_sealed or not has_ended else f"{run.state}, no seal"
    place = run.workspace
    if is_short and len(place) > _PLACE_WIDTH:
        place = f"…{place[1 - _PLACE_WIDTH :]}"
    return run.id, state, f"{run.duration_s:.1f} s" if has_ended else "", place, run.prompt or run.reason


def _warn_if_damaged(path: Path) -> None:
    """Warn if a record is damaged, before it is shown."""
    from ringfence.journal import verify_run

    found = verify_run(path)
    if found.status in ("broken", "truncated"):
        where = "" if found.bad_line is None else f" at line {found.bad_line}"
        line = (
            f"this record is {_STATUS_TEXT[found.status]}{where}: {found.reason}; do not rely on its contents"
        )
        typer.echo(f"ringfence: WARNING: {visible(line, one_line=True)}", err=True)


def _journal_of(run: str) -> Path:
    from ringfence.cli.runs.reference import chosen_run

    if "/" not in run:
        return chosen_run(run)
    path = Path(run)
    return path if path.is_dir() else check_file(path)


def _verification_line(found: "Verification") -> str:
    status = "still running" if _is_running(found) else _STATUS_TEXT[found.status]
    parts = [status, found.run_id or str(found.path), counted(found.events, "event")]
    if found.bad_line is not None:
        parts.append(f"line {found.bad_line}: {found.reason}")
    elif found.reason is not None:
        parts.append(found.reason)
    if found.ok:
        parts.append(f"signed by key {found.signer} at {found.sealed_at}")
    return visible("  ".join(parts), one_line=True)


def _is_running(found: "Verification") -> bool:
    from ringfence.journal import is_alive

    return found.status == "open" and is_alive(found.path.parent)


def _state_document(state: "StateVerification") -> dict[str, Any]:
    from ringfence.journal import STATE_LIMITS, describe_verification
    from ringfence.journal.verification import describe_finding

    return {
        "runs": [describe_verification(one) for one in state.runs],
        "findings": [describe_finding(one) for one in state.findings],
        "chain": {"entries": state.entries, "head": state.head},
        "limits": STATE_LIMITS,
    }


def _verification_code(found: "Sequence[Verification]") -> ExitCode:
    states = {one.status for one in found}
    if states & {"broken", "truncated"}:
        return ExitCode.FAILED
    return ExitCode.CHECK_RED if "open" in states else ExitCode.OK
