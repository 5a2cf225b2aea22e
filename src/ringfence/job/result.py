"""How a run ended."""

from pathlib import Path
from typing import Any

from ringfence.events import JobEnded, WorkExported
from ringfence.frozen import frozen
from ringfence.job.state import JobState


@frozen
class JobResult:
    """How a run ended and where its record is."""

    run_id: str
    run_dir: Path
    state: JobState
    reason: str
    exit_code: int
    """An `ExitCode`; of a session on a terminal that of its program."""
    final_text: str
    ended: JobEnded
    """The end as it was recorded, with what was used."""
    structured_output: Any = None
    """The agent's answer by the output schema, if one was asked for."""
    work: WorkExported | None = None
    """What was brought out; None if nothing was begun, or it could not be."""
    command_exit_code: int | None = None
    """Of the user's own command, in runs that are one."""
    is_request_refused: bool = False
    """Whether the model's API refused for good how it was asked."""
    is_unwatched: bool = False
    """Whether whoever was shown it left before its end."""
    problems: tuple[str, ...] = ()
    """What went wrong after the end was recorded, or while an error was kept."""
