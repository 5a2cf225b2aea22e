"""Which run a command acts on: `last` is the newest one here, and what was chosen is told."""

from pathlib import Path

import typer

from ringfence.errors import RecordError, UsageError
from ringfence.escape import visible


def chosen_run(reference: str) -> Path:
    """The directory of the run that `reference` means; a line on stderr says which one that is.

    Args:
        reference: A run id or the beginning of one, from anywhere; or `last`: the newest run with work on the
            workspace that the current directory is in.

    Raises:
        UsageError: No run fits, or several do.
    """
    from ringfence.journal import resolve

    path = _last_here() if reference == "last" else resolve(reference)
    _tell(path)
    return path


def _last_here() -> Path:
    from ringfence.journal import run_dirs

    try:
        here = Path.cwd()
    except OSError as exc:
        raise UsageError(
            "the current directory is gone, so 'last' means nothing; name a run, `ringfence audit ls` lists them"
        ) from exc
    places = {str(place) for place in (here, *here.parents)}
    for path in run_dirs():
        if _workspace(path) in places:
            return path
    raise UsageError(
        f"there is no run with work on {str(here)!r} or a directory above it; go to its workspace or name a run, "
        "`ringfence audit ls` lists them"
    )


def _workspace(path: Path) -> str | None:
    from ringfence.sandbox.workspace.work import load_record

    try:
        return load_record(path).workspace
    except RecordError:
        return None


def _tell(path: Path) -> None:
    from ringfence.journal import summarize

    place, task = _workspace(path) or "no workspace", summarize(path).prompt
    typer.echo(visible(f"run {path.name}  {place}  {task}".rstrip(), one_line=True), err=True)
