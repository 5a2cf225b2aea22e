"""What a user should know before a run of where the workspace lies, and of the settings it found there."""

import os
import shlex
from contextlib import suppress
from pathlib import Path

from ringfence.config.authorship import author_of, told
from ringfence.config.discovery import find_project_file
from ringfence.config.trust import is_trusted
from ringfence.errors import ConfigurationError
from ringfence.sandbox.workspace.git.layout import has_git, read_small


def surroundings(workspace: Path, state: Path) -> list[str]:
    """Notes for the start of a run."""
    return [*_part_note(workspace), *_settings_note(workspace, state)]


def _part_note(workspace: Path) -> list[str]:
    """Tell that the project is larger than what the agent sees. A home that is a repository is no project."""
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises where there is none
    if has_git(workspace):
        return []
    for folder in workspace.parents:
        if folder in (home, Path(folder.anchor)):
            return []
        if (folder / ".git").is_file() or (folder / ".git" / "HEAD").is_file():
            whole = f"use `-C {shlex.quote(str(folder))}` to give it the whole"
            seen = "the agent sees only this directory and no history"
            return [f"the workspace is a part of the repository at {str(folder)!r}; {seen}; {whole}"]
    return []


def _settings_note(workspace: Path, state: Path) -> list[str]:
    """Tell of a project file that a run left: it can only tighten, but that may be what keeps this run from working."""
    with suppress(ConfigurationError):
        file = find_project_file(workspace)
        run = author_of(file, state) if file is not None else None
        if file is not None and run is not None:
            content = read_small(file.parent, os.fsencode(file.name))
            if content is not None and not is_trusted(file, content):
                return [f"{told(file, run)}; it is not trusted, so it only tightens this run"]
    return []
