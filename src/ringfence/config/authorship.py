"""Which run left a project file as it is: told where that file makes trouble, so that the user knows whom to ask.

A file and its content together have an author; whoever changes the file makes it his own.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from ringfence.config.discovery import PROJECT_FILE_NAME, find_project_file
from ringfence.config.document import read_regular_file
from ringfence.config.paths import replace_state_file
from ringfence.config.trust import is_trusted
from ringfence.errors import ConfigurationError

PROJECT_FILE_NAMES = frozenset({PROJECT_FILE_NAME, "ringfence.yml"})
"""What is read as a project's file, and what is refused for its name."""
_RUN_LIMIT_BYTES = 200


def remember_author(file: Path, content: bytes, *, run: str, state: Path) -> None:
    """Remember that `run` left `file` with this content.

    Raises:
        InfrastructureFault: The state directory cannot be written.
    """
    replace_state_file(_mark(file, content, state), run.encode())


def author_of(file: Path, state: Path) -> str | None:
    """The run that left `file` as it is; None if none did, or that cannot be told."""
    try:
        content = read_regular_file(file, follow_link=False)
        return _mark(file, content, state).read_bytes()[:_RUN_LIMIT_BYTES].decode()
    except (ConfigurationError, OSError, UnicodeDecodeError):
        return None


def told(file: Path, run: str) -> str:
    """What to say about a file that a run made or changed."""
    return f"run {run!r} made or changed {file.name!r}; `ringfence undo {run[-8:]}` takes that back"


def note_author(workspace: Path, state: Path) -> tuple[str, ...]:
    """Note a project file that a run left: it can only tighten, but that may be what keeps the next from working."""
    with suppress(ConfigurationError):
        file = find_project_file(workspace)
        run = author_of(file, state) if file is not None else None
        if file is not None and run is not None and not is_trusted(file, read_regular_file(file)):
            return (f"{told(file, run)}; it is not trusted, so it only tightens this run",)
    return ()


def with_author(error: ConfigurationError, state: Path) -> ConfigurationError:
    """The error, and the run that left the file so, where one did."""
    if error.file is None or error.file.name not in PROJECT_FILE_NAMES:
        return error
    run = author_of(error.file, state)
    if run is None:
        return error
    message = f"{error.message}; {told(error.file, run)}"
    return ConfigurationError(message, file=error.file, line=error.line, column=error.column)


def _mark(file: Path, content: bytes, state: Path) -> Path:
    real = os.fsencode(file.parent.resolve() / file.name)
    name = hashlib.sha256(real + b"\0" + hashlib.sha256(content).digest()).hexdigest()
    return state / "authors" / name
