"""Work on a private copy (mode `clone`): wherever it is told of, what brings it in is told, too."""

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import RecordError

if TYPE_CHECKING:
    from ringfence.events import WorkExported


def how_to_apply(work: "WorkExported | None", run_dir: Path) -> str | None:
    """What brings the files that a run changed into the workspace; None where they are there already."""
    from ringfence.sandbox.workspace.work import load_record

    if work is None or not work.files_changed:
        return None
    try:
        is_clone = load_record(run_dir).mode == "clone"
    except RecordError:
        return None
    if not is_clone:
        return None
    return f"on a private copy: bring it in with `ringfence apply {run_dir.name[-8:]}`"
