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
        metavar="RUN", help="A run id, the beginning of one or of its last eight digits, or 'last'."
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

    record, state = _load(run)
    changes = anyio.run(diff_run, record, state)
    for path in runs_on_your_machine(record, changes):
        typer.echo(
            f"ringfence: RUNS ON YOUR MACHINE, look before you use it: {visible(path, one_line=True)}",
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
    _tell("applied", _act(apply_run, record, state, force=force))


def undo(run: _Run = "last", *, force: _Force = False) -> None:
    """Take a run's changes back out of the workspace."""
    from ringfence.sandbox.workspace.work import undo_run

    record, state = _load(run)
    _tell("undone", _act(undo_run, record, state, force=force))


def _load(run: str) -> "tuple[WorkRecord, Path]":
    from ringfence.config.paths import state_dir
    from ringfence.journal import resolve
    from ringfence.sandbox.workspace.work import load_record

    return load_record(resolve(run)), state_dir()


def _act(
    act: "Callable[..., Awaitable[Restored]]", record: "WorkRecord", state: "Path", *, force: bool
) -> "Restored":
    from functools import partial

    import anyio

    return anyio.run(partial(act, record, state, force=force))


def _tell(verb: str, restored: "Restored") -> None:
    from ringfence.cli.escape import visible

    for change in restored.diff.files:
        typer.echo(f"{change.kind:<10} {visible(change.path, one_line=True)}")
    typer.echo(f"{verb}: {len(restored.diff.files)} files", err=True)
