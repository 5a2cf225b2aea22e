"""What a run came to, from the last events of its record: its end, its changes, its check."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ringfence.errors import RecordError
from ringfence.events import CommandEnded, JobEnded, SandboxCreated, VerificationEnded, WorkExported
from ringfence.journal.reader import creation_of, read_named, summarize

_NAMES = frozenset({"work.exported", "verification.ended", "command.ended", "sandbox.created", "job.ended"})


@dataclass
class RunOutcome:
    """The last events about what a run came to; None where there is none."""

    work: WorkExported | None = None
    check: VerificationEnded | None = None
    command: CommandEnded | None = None
    """The command of `exec` and `shell`."""
    ended: JobEnded | None = None


def read_outcome(path: Path) -> RunOutcome:
    """Read what the run in a directory came to, as far as its record can be read."""
    found, sandbox_id = RunOutcome(), ""
    with suppress(RecordError):
        for record in read_named(path, _NAMES):
            event = record.event
            if isinstance(event, WorkExported):
                found.work = event
            elif isinstance(event, VerificationEnded):
                found.check = event
            elif isinstance(event, JobEnded):
                found.ended = event
            elif isinstance(event, SandboxCreated) and event.purpose in ("exec", "shell"):
                sandbox_id = event.sandbox_id
            elif isinstance(event, CommandEnded) and event.sandbox_id == sandbox_id:
                found.command = event
    return found


def describe_run(path: Path, outcome: RunOutcome) -> dict[str, Any]:
    """Return the summary of the run in a directory as data for JSON."""
    created, ended = creation_of(path), outcome.ended
    return {
        **msgspec.to_builtins(summarize(path)),
        "workspace": created.workspace if created else None,
        "runtime": created.runtime if created else None,
        "turns": None if ended is None else ended.turns,
        "tool_calls": None if ended is None else ended.tool_calls,
        "usage": None if ended is None else msgspec.structs.asdict(ended.usage),
        "command_exit_code": None if outcome.command is None else outcome.command.exit_code,
        "check_exit_code": None if outcome.check is None else outcome.check.exit_code,
        "changes": None if outcome.work is None else msgspec.to_builtins(outcome.work),
        "files": sorted(each.name for each in path.iterdir()),
    }
