"""`ringfence diff`, `apply`, `undo`: what a run changed, into the workspace or out of it."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from ringfence.sandbox.workspace.restore import Restored
    from ringfence.sandbox.workspace.work import WorkRecord

_Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run id, the beginning of one or of its last eight digits, or 'last': the newest on this workspace.",
    ),
]
_Force = Annotated[bool, typer.Option("--force", help="Also over files that were changed since.")]


def diff(
    run: _Run = "last",
    *,
    stat: Annotated[bool, typer.Option("--stat", help="Only the files and how many lines.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The patch as it is, for `git apply`; not escaped.")
    ] = False,
) -> None:
    """Show what a run changed in its workspace."""
    import sys

    import anyio

    from ringfence.cli.escape import visible
    from ringfence.sandbox.workspace.work import diff_run, patch_run, runs_on_your_machine

    record, state = _load(run, completes=True)
    changes = anyio.run(diff_run, record, state)
    for path in runs_on_your_machine(record, changes):
        typer.echo(
            "ringfence: RUNS ON YOUR MACHINE, or is protected; look before you use it: "
            f"{visible(path, one_line=True)}",
            err=True,
        )
    if stat:
        for change in changes.files:
            lines = "binary" if change.binary else f"+{change.insertions} -{change.deletions}"
            typer.echo(f"{change.kind:<10} {lines:<12} {visible(change.path, one_line=True)}")
        return
    patch = anyio.run(patch_run, record, state)
    if raw:
        sys.stdout.buffer.write(patch)
        return
    for line in patch.decode("utf-8", "replace").splitlines():
        typer.echo(visible(line))


def apply(run: _Run = "last", *, force: _Force = False) -> None:
    """Bring a run's changes into the workspace: those of a clone, or those that were undone."""
    from ringfence.sandbox.workspace.work import apply_run

    record, state = _load(run)
    _tell("apply", "applied", _act(apply_run, record, state, force=force))


def undo(run: _Run = "last", *, force: _Force = False) -> None:
    """Take a run's changes back out of the workspace."""
    from ringfence.sandbox.workspace.work import undo_run

    record, state = _load(run)
    _tell("undo", "undone", _act(undo_run, record, state, force=force))


def _load(run: str, *, completes: bool = False) -> "tuple[WorkRecord, Path]":
    """The work of a run. One whose process died has its end taken now.

    On the workspace itself that may hold what others wrote since; only after a look (`diff`) is it acted on.
    """
    import anyio

    from ringfence.cli.chosen import chosen_run
    from ringfence.config.paths import state_dir
    from ringfence.errors import RingfenceError
    from ringfence.job.closing import completed_work
    from ringfence.journal import is_alive
    from ringfence.sandbox.workspace.work import load_record

    path = chosen_run(run)
    record = load_record(path)
    if record.after is None and record.mode != "clone" and not completes and not is_alive(path):
        raise RingfenceError(
            f"run {path.name!r} was interrupted, and its changes cannot be told from yours since; look at them "
            f"with `ringfence diff {path.name[-8:]}`, then try again"
        )
    record, is_late = anyio.run(completed_work, path)
    if is_late and record.mode != "clone":
        typer.echo(
            "ringfence: the run was interrupted; this is all that has changed since it began", err=True
        )
    return record, state_dir()


def _act(
    act: "Callable[..., Awaitable[Restored]]", record: "WorkRecord", state: "Path", *, force: bool
) -> "Restored":
    from functools import partial

    import anyio

    return anyio.run(partial(act, record, state, force=force))


def _tell(verb: str, done: str, restored: "Restored") -> None:
    from ringfence.cli.escape import visible
    from ringfence.cli.plural import counted

    files = restored.diff.files
    for change in files:
        typer.echo(f"{change.kind:<10} {visible(change.path, one_line=True)}")
    typer.echo(f"{done}: {counted(len(files), 'file')}" if files else f"nothing to {verb}", err=True)
