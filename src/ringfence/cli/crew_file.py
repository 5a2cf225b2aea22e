"""Which file a command on a crew means."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.errors import UsageError

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The crew's file, or a herdctl.yaml; else ringfence.yaml, found upwards.",
    ),
]


def fleet_file(file: Path | None) -> Path:
    """The crew's file: the one that was named, or the project's.

    Raises:
        UsageError: There is none.
    """
    from ringfence.config.discovery import find_project_file

    found = file.absolute() if file is not None else find_project_file(Path.cwd())
    if found is None and Path("herdctl.yaml").exists():
        raise UsageError(
            "there is no ringfence.yaml here or above, but a herdctl.yaml: `--file herdctl.yaml` reads it as it is, "
            "`ringfence fleet import herdctl.yaml` writes it as ringfence.yaml"
        )
    if found is None:
        raise UsageError("there is no ringfence.yaml here or above; write one, or name a file with --file")
    return found
