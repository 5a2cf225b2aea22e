"""Finds the project's file: upwards from the workspace, never as far as home, never through a link."""

import os
import stat
from pathlib import Path

from ringfence.errors import ConfigurationError

PROJECT_FILE_NAME = "ringfence.yaml"


def find_project_file(workspace: Path) -> Path | None:
    """The nearest `ringfence.yaml` in the workspace or above it.

    The search ends before the home directory and before the root of the file system: what lies there belongs
    to no project. Directories above the workspace that everybody may write (`/tmp`) are passed over.

    Raises:
        ConfigurationError: There is a `ringfence.yml`, which would not be read.
    """
    start = workspace.resolve()
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises where there is none
    for directory in (start, *start.parents):
        if directory in (home, Path(directory.anchor)):
            return None
        if directory != start and _is_writable_by_all(directory):
            continue
        file = directory / PROJECT_FILE_NAME
        if os.path.lexists(file):
            return file
        misnamed = directory / "ringfence.yml"
        if os.path.lexists(misnamed):
            raise ConfigurationError(
                f"this name is not read; rename it to {PROJECT_FILE_NAME!r}", file=misnamed
            )
    return None


def _is_writable_by_all(directory: Path) -> bool:
    try:
        return bool(directory.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return True
