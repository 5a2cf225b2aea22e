"""Finds the run that a command acts on.

For every command, `last` is the newest run on this workspace that opened a sandbox: a run that was refused before that
has changed and logged nothing, and can only be named by its id.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ringfence.errors import UsageError
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.sandbox.workspace.record import WorkRecord


def chosen_run(reference: str, *, everywhere: bool = False) -> Path:
    """Find the directory of a run by its reference.

    Args:
        reference: A run id or the beginning of one, from anywhere; or `last`: the newest run that opened a sandbox on
            the workspace that the current directory is in.
        everywhere: Whether `last` is the newest such run on any workspace.

    Raises:
        UsageError: No run matches, or several do.
    """
    from ringfence.journal import has_opened_sandbox, resolve, run_dirs

    if reference != "last":
        return resolve(reference)
    newest = None
    for path in run_dirs() if everywhere else _runs_here():
        newest = newest or path
        if has_opened_sandbox(path):
            return path
    if newest is None:
        raise UsageError("there are no runs yet; `ringfence run` creates one")
    if (loop := _loop_of(newest)) is not None:
        raise UsageError(
            f"the newest record is that of loop {loop}, and no other run has worked in a sandbox yet; `ringfence loop "
            f"diff --loop {loop}` shows what the loop changed"
        )
    raise UsageError(
        f"no run has worked in a sandbox yet; `ringfence runs show {newest.name[-8:]}` shows why the newest did not"
    )


def chosen_change(reference: str, *, everywhere: bool = False) -> Path:
    """Find the directory of a run as `chosen_run` does, and print the run on stderr.

    Raises:
        UsageError: No run matches, or several do.
    """
    from ringfence.sandbox.workspace.record import has_record

    path = chosen_run(reference, everywhere=everywhere)
    place, task = _workspace(path) if has_record(path) else "no workspace", task_of(path)
    typer.echo(visible(f"run {path.name}  {place}  {task}".rstrip(), one_line=True), err=True)
    return path


def nothing_changed(path: Path, command: str) -> str | None:
    """Describe that a run changed nothing, with the command for the newest run that has pending changes.

    Args:
        path: The run's directory.
        command: The command on the changes: `diff`, `apply` or `undo`.

    Returns:
        The description; None if the run changed something.
    """
    from ringfence.journal import run_dirs
    from ringfence.sandbox.workspace.record import has_record, load_record

    if has_record(path) and _has_changes(load_record(path), command):
        return None
    if (loop := _loop_of(path)) is not None:
        return f"run {path.name!r} is the record of a loop; `ringfence loop diff --loop {loop}` shows what that changed"
    place = _workspace(path)
    others = (run for run in run_dirs() if run != path and _workspace(run) == place)
    newest = next((run for run in others if _is_pending(run, command)), None)
    verb = "show" if command == "diff" else command
    problem = f"run {path.name!r} changed no files, so there is nothing to {verb}"
    if newest is None:
        return f"{problem}; no other run on its workspace has changes to {verb}"
    return f"{problem}; the newest run with changes to {verb}: `ringfence {command} {newest.name[-8:]}`"


def how_to_stop(run: Path) -> str:
    """The next step for a run that has to end first: how to stop it, depending on what started it."""
    from ringfence.job.run_process import is_terminable
    from ringfence.sandbox.supervisor.directory import find_by_run

    name = find_by_run(run.name)
    if name is not None:
        return f"`ringfence sandbox rm {name}` ends it, as it is the run of that standing sandbox"
    if is_terminable(run):
        return f"wait for its end, or `ringfence runs stop {run.name[-8:]}` stops it and keeps its work"
    return "wait for its end, or stop the loop, the fleet's job or the program that it belongs to"


def _has_changes(record: "WorkRecord", command: str) -> bool:
    from ringfence.config.paths import state_dir
    from ringfence.sandbox.workspace.record import has_changes

    return has_changes(record, state_dir(), in_files=command == "undo")  # undo does not revert commits


def _is_pending(run: Path, command: str) -> bool:
    """Whether a run has ended and has changes that the command would show, apply or undo."""
    import anyio

    from ringfence.config.paths import state_dir
    from ringfence.job.changes import undone_marker
    from ringfence.journal import is_alive
    from ringfence.sandbox.workspace.record import has_record, is_applied, load_record

    if not has_record(run) or is_alive(run):
        return False
    record, is_undone = load_record(run), undone_marker(run).exists()
    if record.after is None or not _has_changes(
        record, command
    ):  # for an interrupted run, `diff` is required first
        return record.after is None and command == "diff"
    if command == "diff":
        return not is_undone
    is_in_workspace = not is_undone and (record.mode != "clone" or anyio.run(is_applied, record, state_dir()))
    return is_in_workspace == (command == "undo")


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


def _loop_of(path: Path) -> str | None:
    """The id of the loop that a record belongs to; None for a run's record."""
    from ringfence.journal import creation_of

    created = creation_of(path)
    return created.session_id if created is not None and created.runtime == "loop" else None


def task_of(path: Path) -> str:
    """The task of a run as it was given; empty if it has none."""
    from ringfence.journal import summarize

    return summarize(path).prompt
