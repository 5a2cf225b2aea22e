"""`ringfence checkpoint`: saves named states of a workspace, compares with them and restores them."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ringfence.cli.options import JsonOption, WorkspaceOption
from ringfence.cli.output import counted, notify
from ringfence.cli.render.changes import report_restored, show_patch, show_stat, show_unkept
from ringfence.errors import UsageError
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ringfence.sandbox.workspace.snapshot.named_checkpoints import NamedCheckpoints

_Result = TypeVar("_Result")
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the checkpoint.")]


def create(
    name: _Name,
    *,
    workspace: WorkspaceOption = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace a checkpoint of this name.")] = False,
    json: JsonOption = False,
) -> None:
    """Keep the state of the workspace under a name."""
    kept = _run_on_checkpoints(workspace, lambda checkpoints: checkpoints.create(name, force=force))
    skipped = {os.fsdecode(path): why for path, why in sorted(kept.found.skipped.items())}
    for path, why in skipped.items():
        notify(f"not kept: {path!r} ({why})")
    for note in kept.notes:
        notify(note)
    if json:
        document = {
            "name": name,
            "id": kept.id,
            "tree": kept.tree,
            "files": kept.files,
            "skipped": skipped,
        }
        typer.echo(safe_json(document, indent=2))
        return
    typer.echo(f"kept {counted(kept.files, 'file')} as {name!r}", err=True)


def ls(*, workspace: WorkspaceOption = Path(), json: JsonOption = False) -> None:
    """List the workspace's checkpoints, the newest first."""
    from datetime import UTC, datetime

    from ringfence.cli.render.console import open_console, print_table

    found = _run_on_checkpoints(workspace, lambda checkpoints: checkpoints.all())
    if json:
        shown = [{"name": one.name, "id": one.id, "tree": one.tree, "taken_s": one.taken_s} for one in found]
        typer.echo(safe_json(shown, indent=2))
        return
    times = [datetime.fromtimestamp(one.taken_s, UTC).astimezone() for one in found]
    rows = [
        (when.isoformat(" ", "seconds"), one.id[:12], one.name)
        for when, one in zip(times, found, strict=True)
    ]
    print_table(open_console(), ("created", "checkpoint", "name"), rows)


def diff(
    name: _Name,
    other: Annotated[
        str | None,
        typer.Argument(metavar="OTHER", help="Checkpoint to compare with; default: the workspace."),
    ] = None,
    *,
    workspace: WorkspaceOption = Path(),
    stat: Annotated[bool, typer.Option("--stat", help="Show only the files and numbers of lines.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the unescaped patch, for `git apply`.")] = False,
) -> None:
    """Show what changed since a checkpoint."""
    if stat and raw:
        raise UsageError("--stat and --raw show different things; give one of them")
    changes, patch = _run_on_checkpoints(
        workspace, lambda checkpoints: checkpoints.diff(name, other, with_patch=not stat)
    )
    show_unkept(changes)
    if stat:
        show_stat(changes)
    else:
        show_patch(patch, raw=raw)


def restore(name: _Name, *, workspace: WorkspaceOption = Path()) -> None:
    """Set the workspace back to a checkpoint.

    The state before is kept as the checkpoint `before-restore`.
    """
    from ringfence.sandbox.workspace.snapshot.named_checkpoints import BEFORE_RESTORE

    restored = _run_on_checkpoints(workspace, lambda checkpoints: checkpoints.restore(name))
    report_restored("restore", "restored", restored, whose="somebody")
    if restored.diff.files:
        notify(f"to take it back: ringfence checkpoint restore {BEFORE_RESTORE}")


def rm(name: _Name, *, workspace: WorkspaceOption = Path()) -> None:
    """Remove a checkpoint and what only it holds."""
    _run_on_checkpoints(workspace, lambda checkpoints: checkpoints.remove(name))


def _run_on_checkpoints(
    workspace: "Path", act: "Callable[[NamedCheckpoints], Awaitable[_Result]]"
) -> "_Result":
    import anyio

    from ringfence.config.paths import state_dir
    from ringfence.sandbox.workspace.snapshot.named_checkpoints import open_named_checkpoints

    async def run() -> "_Result":
        return await act(await open_named_checkpoints(workspace, state_dir()))

    return anyio.run(run)
