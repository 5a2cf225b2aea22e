"""`ringfence diff`, `apply`, `undo`: show a run's changes, apply them to the workspace or revert them."""

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.options import AllOption, RunArgument, SignWithOption
from ringfence.cli.output import counted, notify
from ringfence.cli.render.changes import (
    print_lines,
    report_restored,
    show_committed,
    show_patch,
    show_stat,
    show_unkept,
)
from ringfence.cli.render.summary import listing, warnings
from ringfence.errors import RingfenceError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ringfence.sandbox.workspace.record import WorkRecord
    from ringfence.sandbox.workspace.restore import Restored

_Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that were changed since, and keep them.")
]


def diff(
    run: RunArgument = "last",
    *,
    stat: Annotated[bool, typer.Option("--stat", help="Show only the files and numbers of lines.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the unescaped patch, for `git apply`.")] = False,
    flagged: Annotated[
        bool,
        typer.Option("--flagged", help="Show only files that run on your machine or are protected."),
    ] = False,
    everywhere: AllOption = False,
) -> None:
    """Show what a run changed in its workspace."""
    import anyio

    from ringfence.job.changes import undone_marker
    from ringfence.journal import run_dir
    from ringfence.sandbox.workspace.record import diff_run, open_store, patch_run, runs_on_your_machine

    if stat + raw + flagged > 1:
        raise UsageError("--stat, --raw and --flagged show different things; give one of them")
    record, state = _load(run, "diff", everywhere=everywhere)
    if undone_marker(run_dir(record.run)).exists():
        notify(f"this was undone since; `ringfence apply {record.run[-8:]}` brings it in again")
    changes = anyio.run(diff_run, record, open_store(record, state))
    suspects = runs_on_your_machine(record, changes)
    if flagged:
        print_lines(listing(suspects, record))
        return
    for line in warnings(suspects, record.run):
        notify(line)
    show_unkept(changes)
    if stat:
        show_stat(changes)
        show_committed(record.committed)
        return
    show_patch(anyio.run(patch_run, record, open_store(record, state)), raw=raw)
    if record.committed:
        _show_commits(record, raw=raw)


def _show_commits(record: "WorkRecord", *, raw: bool) -> None:
    """Show the files that only commits change, after the changes of the workspace's files."""
    import anyio

    from ringfence.sandbox.workspace.git.merge import commit_patch

    refs = dict.fromkeys(file.ref for file in record.committed)
    for ref in refs:
        files = [file for file in record.committed if file.ref == ref]
        notify(f"{counted(len(files), 'file')} changed in commits only, in {ref}:")
        paths = [file.path for file in files if not file.is_earlier]
        build = partial(
            commit_patch, record.workspace, record.base_commit, record.refs.get(ref), paths, record.actor
        )
        patch = None if raw else anyio.run(build)
        if patch is not None:
            show_patch(patch, raw=False)
        show_committed(files if patch is None else [file for file in files if file.is_earlier])


def apply(
    run: RunArgument = "last",
    *,
    force: _Force = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Commit the changes, and only them, on your branch.")
    ] = False,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="Message of the commit.")
    ] = None,
    attest: Annotated[
        bool, typer.Option("--attest", help="Attach an attestation of the run to the commit.")
    ] = False,
    sign_with: SignWithOption = None,
    everywhere: AllOption = False,
) -> None:
    """Apply a run's changes to the workspace.

    Applies the changes of a private copy, or changes that were undone. With --commit they are committed as you, without
    running hooks; refused if changes are staged, or the run changed files that had changes of yours.
    """
    import anyio

    from ringfence.cli.changes.commit import apply_and_commit
    from ringfence.job.changes import check_record, mark_applied
    from ringfence.journal import run_dir
    from ringfence.sandbox.workspace.record import apply_run, runs_on_your_machine

    if force and commit:
        raise UsageError(
            "--force overwrites your changes, and --commit commits none of yours; give one of them"
        )
    if (message is not None or attest) and not commit:
        raise UsageError("--message and --attest are about a commit; add --commit")
    if sign_with and not attest:
        raise UsageError("--sign-with signs an attestation; add --attest")
    record, state = _load(run, "apply", everywhere=everywhere)
    check_record(run_dir(record.run))
    made = None
    with _named_next_step(record, "apply"):
        if commit:
            signers = tuple(sign_with or ("journal",)) if attest else ()
            restored, made = anyio.run(
                partial(apply_and_commit, record, state, message=message, signers=signers)
            )
        else:
            restored = anyio.run(partial(apply_run, record, state, force=force))
    mark_applied(run_dir(record.run))
    report_restored("apply", "applied", restored)
    for line in warnings(runs_on_your_machine(record, restored.diff), record.run):
        notify(line)
    _report_overwritten(restored, record, "undo")
    if made is not None:
        typer.echo(f"committed: {made.id[:12]} on {made.ref.removeprefix('refs/heads/')}", err=True)
        if attest:
            typer.echo(
                "attested in refs/notes/ringfence; push it with `git push REMOTE HEAD 'refs/notes/ringfence*'`",
                err=True,
            )


def undo(run: RunArgument = "last", *, force: _Force = False, everywhere: AllOption = False) -> None:
    """Undo a run's changes in the workspace."""
    import anyio

    from ringfence.job.changes import undone_marker
    from ringfence.journal import run_dir
    from ringfence.sandbox.workspace.record import is_applied, undo_run

    record, state = _load(run, "undo", everywhere=everywhere)
    if record.mode == "clone" and not anyio.run(is_applied, record, state):
        raise RingfenceError(
            f"run {record.run!r} worked on a private copy that was never applied, so there is nothing to undo; "
            f"`ringfence diff {record.run[-8:]}` shows its changes, `ringfence apply {record.run[-8:]}` applies them"
        )
    with _named_next_step(record, "undo"):
        restored = anyio.run(partial(undo_run, record, state, force=force))
    if restored.diff.files:
        undone_marker(run_dir(record.run)).touch(mode=0o600)
    report_restored("undo", "undone", restored)
    _report_overwritten(restored, record, "apply")
    if restored.repositories.stuck or restored.active:
        raise typer.Exit(1)


@contextmanager
def _named_next_step(record: "WorkRecord", command: str) -> "Iterator[None]":
    """Add advice to an error about files in the way: the commands that show and overwrite them.

    Raises:
        RingfenceError: Files are in the way.
    """
    from ringfence.sandbox.workspace.restore import WorkspaceConflict

    try:
        yield
    except WorkspaceConflict as exc:
        if not exc.can_force:
            raise
        short, opposite = record.run[-8:], "undo" if command == "apply" else "apply"
        raise RingfenceError(
            f"{exc.problem}; `ringfence diff {short}` shows the run's changes, `ringfence {command} --force {short}` "
            f"overwrites yours, which `ringfence {opposite} {short}` then brings back"
        ) from exc


def _report_overwritten(restored: "Restored", record: "WorkRecord", opposite: str) -> None:
    from ringfence.sandbox.workspace.snapshot.memo import list_names

    if restored.overwritten:
        notify(
            f"overwritten, and kept: {list_names(restored.overwritten)}; `ringfence {opposite} {record.run[-8:]}` "
            "brings back what was there"
        )


def _load(run: str, command: str, *, everywhere: bool) -> "tuple[WorkRecord, Path]":
    """Load the changes of a run for `diff`, `apply` or `undo`; the final state of an interrupted run is captured now.

    That state may include later changes by others, unless the run had a private copy. Therefore `apply` and `undo`
    require `diff` first.

    Raises:
        UsageError: The run has not ended.
        RingfenceError: The run has no changes to apply or undo, or was interrupted and not inspected yet.
    """
    import anyio

    from ringfence.cli.runs.reference import chosen_change, how_to_stop, nothing_changed
    from ringfence.config.paths import state_dir
    from ringfence.job.interrupted_runs import completed_work
    from ringfence.journal import is_alive
    from ringfence.sandbox.workspace.record import has_record, load_record

    path = chosen_change(run, everywhere=everywhere)
    if not has_record(path):
        _report_unchanged(nothing_changed(path, command), command)
        raise typer.Exit
    record = load_record(path)
    if record.after is None and is_alive(path):
        raise UsageError(f"run {path.name!r} is still running; {how_to_stop(path)}")
    if record.after is None and record.mode != "clone" and command != "diff":
        raise RingfenceError(
            f"run {path.name!r} was interrupted, and its changes cannot be distinguished from later ones of yours; "
            f"look at them with `ringfence diff {path.name[-8:]}`, then try again"
        )
    record, is_late = anyio.run(completed_work, path)
    if is_late and record.mode != "clone":
        notify("the run was interrupted; these are all changes since it began, yours included")
    _report_unchanged(nothing_changed(path, command), command)
    return record, state_dir()


def _report_unchanged(problem: str | None, command: str) -> None:
    if problem is not None and command != "diff":
        raise RingfenceError(problem)
    if problem is not None:
        notify(problem)
