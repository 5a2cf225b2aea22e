"""Finds the run that a command acts on: `last` is the newest one on this workspace."""

from collections.abc import Iterator
from pathlib import Path

import typer

from ringfence.errors import UsageError
from ringfence.escape import visible


def chosen_run(reference: str, *, everywhere: bool = False) -> Path:
    """Find the directory of a run by its reference.

    Args:
        reference: A run id or the beginning of one, from anywhere; or `last`: the newest run on the workspace that
            the current directory is in.
        everywhere: Whether `last` is the newest run on any workspace.

    Raises:
        UsageError: No run matches, or several do.
    """
    from ringfence.journal import resolve, run_dirs

    if reference != "last":
        return resolve(reference)
    if not everywhere:
        return next(_runs_here())
    newest = next(iter(run_dirs()), None)
    if newest is None:
        raise UsageError("there are no runs yet; `ringfence run` creates one")
    return newest


def chosen_change(reference: str, *, everywhere: bool = False) -> Path:
    """Find the directory of a run as `chosen_run` does, and print the run on stderr.

    Raises:
        UsageError: No run matches, or several do.
    """
    from ringfence.sandbox.workspace.record import has_record

    path = chosen_run(reference, everywhere=everywhere)
    place, task = _workspace(path) if has_record(path) else "no workspace", _task(path)
    typer.echo(visible(f"run {path.name}  {place}  {task}".rstrip(), one_line=True), err=True)
    return path


def nothing_changed(path: Path, command: str, *, in_files: bool = False) -> str | None:
    """Describe that a run changed nothing, with the command for the newest run that did; None if it changed something.

    Args:
        path: The run's directory.
        command: The command on the changes: `diff`, `apply` or `undo`.
        in_files: Whether only changes of files count, because `undo` does not revert commits.
    """
    from ringfence.config.paths import state_dir
    from ringfence.journal import run_dirs
    from ringfence.sandbox.workspace.record import has_changes, has_record, load_record

    def changed(run: Path) -> bool:
        return has_record(run) and has_changes(load_record(run), state_dir(), in_files=in_files)

    if changed(path):
        return None
    place = _workspace(path)
    others = (run for run in run_dirs() if run != path and _workspace(run) == place)
    newest = next((run for run in others if changed(run)), None)
    verb = "show" if command == "diff" else command
    problem = f"run {path.name!r} changed no files, so there is nothing to {verb}"
    if newest is None:
        return f"{problem}; no other run on its workspace changed any"
    return f"{problem}; for the newest run that changed some: `ringfence {command} {newest.name[-8:]}`"


def _runs_here() -> Iterator[Path]:
    """Yield the runs on the workspace of the current directory, the newest first.

    Raises:
        UsageError: There is no such run.
    """
    from ringfence.journal import run_dirs

    try:
        here = Path.cwd()
    except OSError as exc:
        raise UsageError(
            "the current directory is gone, so 'last' means nothing; name a run, `ringfence runs ls` lists them"
        ) from exc
    places = {str(place) for place in (here, *here.parents)}
    found = False
    for path in run_dirs():
        if _workspace(path) in places:
            found = True
            yield path
    if not found:
        raise UsageError(
            f"there is no run on {str(here)!r} or a directory above it; go to its workspace or name a run, "
            "`ringfence runs ls` lists them"
        )


def _workspace(path: Path) -> str | None:
    """The workspace of a run; None if its record does not name it."""
    from ringfence.journal import creation_of

    created = creation_of(path)
    return created.workspace if created is not None else None


def _task(path: Path) -> str:
    from ringfence.journal import summarize

    return summarize(path).prompt
