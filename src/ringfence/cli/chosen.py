"""Which run a command acts on: `last` is the newest one here, and what was chosen is told."""

from pathlib import Path

import typer

from ringfence.errors import RecordError, UsageError

_NO_AGENT = frozenset({"exec", "shell", "standing", "imported"})


def chosen_run(reference: str, *, of_agents: bool = False) -> Path:
    """The directory of the run that `reference` means; a line on stderr says which one that is.

    Args:
        reference: A run id or the beginning of one, from anywhere; or `last`: the newest run with work on the
            workspace that the current directory is in.
        of_agents: `last` means an agent's run.

    Raises:
        UsageError: No run fits, or several do.
    """
    from ringfence.journal import resolve

    path = _last_here(of_agents) if reference == "last" else resolve(reference)
    _tell(path)
    return path


def _last_here(of_agents: bool) -> Path:
    from ringfence.journal import run_dirs

    try:
        here = Path.cwd()
    except OSError as exc:
        raise UsageError(
            "the current directory is gone, so 'last' means nothing; name a run, `ringfence audit ls` lists them"
        ) from exc
    places = {str(place) for place in (here, *here.parents)}
    for path in run_dirs():
        if _workspace(path) in places and not (of_agents and _is_no_agents(path)):
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


def _is_no_agents(path: Path) -> bool:
    from ringfence.job.continuing import creation_of

    created = creation_of(path)
    return created is not None and created.runtime in _NO_AGENT


def _tell(path: Path) -> None:
    from ringfence.cli.escape import visible
    from ringfence.journal import summarize

    place, task = _workspace(path) or "no workspace", summarize(path).prompt
    typer.echo(visible(f"run {path.name}  {place}  {task}".rstrip(), one_line=True), err=True)
