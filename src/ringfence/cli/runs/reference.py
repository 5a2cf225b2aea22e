"""Which run a command acts on: `last` is the newest one here, and a line on stderr names the one that was chosen."""

from collections.abc import Iterator
from pathlib import Path

import typer

from ringfence.errors import UsageError
from ringfence.escape import visible


def chosen_run(reference: str, *, everywhere: bool = False) -> Path:
    """The directory of the run that `reference` means.

    Args:
        reference: A run id or the beginning of one, from anywhere; or `last`: the newest run on the workspace that
            the current directory is in.
        everywhere: Whether `last` is the newest run on any workspace.

    Raises:
        UsageError: No run fits, or several do.
    """
    from ringfence.journal import resolve, run_dirs

    if reference != "last":
        return resolve(reference)
    if not everywhere:
        return next(_runs_here())
    newest = next(iter(run_dirs()), None)
    if newest is None:
        raise UsageError("there are no runs yet; `ringfence run` makes one")
    return newest


def chosen_change(reference: str, *, in_files: bool = False) -> Path:
    """The directory of the run whose changes `reference` means; a line on stderr says which one that is.

    Args:
        reference: As for `chosen_run`, but `last` is the newest run here that changed something, so that `diff last`
            shows what `undo last` takes back. Where none did, it is the newest run here that had a workspace.
        in_files: Whether `last` is to have changed files: `undo` takes no commits back.

    Raises:
        UsageError: No run fits, or several do.
    """
    from ringfence.journal import resolve
    from ringfence.sandbox.workspace.record import has_record

    path = _last_change(in_files=in_files) if reference == "last" else resolve(reference)
    place, task = _workspace(path) if has_record(path) else "no workspace", _task(path)
    typer.echo(visible(f"run {path.name}  {place}  {task}".rstrip(), one_line=True), err=True)
    return path


def _last_change(*, in_files: bool) -> Path:
    from ringfence.config.paths import state_dir
    from ringfence.sandbox.workspace.record import has_changes, has_record, load_record

    newest, newest_with_work = None, None
    for path in _runs_here():
        newest = newest or path
        if has_record(path):
            newest_with_work = newest_with_work or path
            if has_changes(load_record(path), state_dir(), in_files=in_files):
                return path
    found = newest_with_work or newest
    assert found is not None
    return found


def _runs_here() -> Iterator[Path]:
    """The runs on the workspace that the current directory is in, the newest first; there is at least one.

    Raises:
        UsageError: There is none.
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
    """The workspace that a run was asked to work on; None if its record does not say."""
    from ringfence.journal import creation_of

    created = creation_of(path)
    return created.workspace if created is not None else None


def _task(path: Path) -> str:
    from ringfence.journal import summarize

    return summarize(path).prompt
