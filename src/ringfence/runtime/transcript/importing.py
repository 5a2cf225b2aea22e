"""A session made elsewhere, as a sealed record of ours. It proves what its files held at that time, nothing more.

The files are measured first: what is added while they are read is left out, and what is changed is an error.
"""

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import RecordError, RingfenceError
from ringfence.events import (
    Event,
    JobEnded,
    ModelReplied,
    SessionImported,
    ToolCalled,
    TranscriptDamaged,
    TranscriptFile,
    Usage,
)
from ringfence.frozen import frozen
from ringfence.journal import Journal, is_alive, new_run_id, read, run_dir, run_dirs, runs_dir, write_session
from ringfence.removal import remove_tree
from ringfence.runtime.transcript.base import ClientName, Overview, between_ms
from ringfence.runtime.transcript.client import survey
from ringfence.runtime.transcript.session import file_events, label, opening, unread
from ringfence.runtime.transcript.source import SourceFile
from ringfence.runtime.transcript.subagents import MAX_FILES, subagent_files
from ringfence.secret import Redactor, environment_secrets

IMPORTED_STATE = "imported"
PROVES = "it proves what the files held when they were read, not that it happened"

_CHUNK_BYTES = 1024**2
_ABANDONED_S = 3600.0
_DOCUMENT_BYTES = 32 * 1024**2
"""Of a larger session no document is written beside the journal: that would hold all of it in memory."""


@frozen
class ImportedSession:
    """A session in our records."""

    run_id: str
    client: ClientName
    client_version: str
    session_id: str
    files: tuple[TranscriptFile, ...]
    events: int
    damaged: int
    """Places that could not be read, or only in part."""
    is_new: bool
    """False if the very same bytes had been imported before: that record is told."""


def import_session(path: Path, *, secrets: Iterable[str] = (), is_again: bool = False) -> ImportedSession:
    """Take a session and its sub-agents' files into a record of its own, without secrets, sealed.

    Args:
        path: The session's file.
        secrets: Values to be taken out; those of the environment and what looks like a secret are in any case.
        is_again: Import it even if there is a record of these bytes.

    Raises:
        RecordError, UsageError: It is no transcript, cannot be read, or was changed meanwhile.
        InfrastructureFault: The record could not be written. Nothing of it is left.
    """
    sources, refused = _measured(path)
    overview = survey(path, limit_bytes=sources[path].size_bytes, to_end=True)
    redactor = Redactor([*secrets, *environment_secrets()], shapes=True)
    told = redactor.redact_event(_imported(path, overview, sources))
    earlier = None if is_again else _earlier(told)
    if earlier is not None:
        return _result(earlier, told, is_new=False)
    run_id = new_run_id()
    staged = make_private_dir(_staging() / f"import-{run_id}")
    try:
        with Journal.create(staged, run_id) as journal:
            journal.append(told)
            journal.append(redactor.redact_event(opening(overview, path, run_id)))
            events = itertools.chain(_events(path, overview.client, sources), refused)
            count = _write(journal, redactor, overview, events)
            journal.seal()
        make_private_dir(runs_dir())
        staged.rename(run_dir(run_id))
    except BaseException:
        with suppress(OSError):
            remove_tree(staged)
        raise
    if sum(source.size_bytes for source in sources.values()) <= _DOCUMENT_BYTES:
        write_session(run_dir(run_id))
    return _result(run_id, told, events=count.events, damaged=count.damaged)


def _staging() -> Path:
    """Where records are made, so that no half of one is ever among the runs; what killed imports left goes."""
    directory = state_dir() / "tmp"
    for left in directory.glob("import-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S and not is_alive(left):
                remove_tree(left)
    return directory


class _Count:
    """What is in an imported session, for its end."""

    def __init__(self) -> None:
        self.events = 0
        self.damaged = 0
        self.tool_calls = 0
        self.replies = 0
        self.usage = Usage()
        self.cost_usd: float | None = 0.0
        self._last_reply = ""

    def see(self, event: Event) -> None:
        self.events += 1
        self.damaged += isinstance(event, TranscriptDamaged)
        self.tool_calls += isinstance(event, ToolCalled)
        if isinstance(event, ModelReplied):
            self.replies += not event.message_id or event.message_id != self._last_reply
            self._last_reply = event.message_id
            self.usage += event.usage
            unknown = event.cost_usd is None or self.cost_usd is None
            self.cost_usd = None if unknown else (self.cost_usd or 0.0) + (event.cost_usd or 0.0)


def _write(journal: Journal, redactor: Redactor, overview: Overview, events: Iterable[Event]) -> _Count:
    """Append the events of a session, and its end."""
    count = _Count()
    for event in events:
        count.see(event)
        journal.append(redactor.redact_event(event))
    journal.append(
        JobEnded(
            state=IMPORTED_STATE,
            exit_code=0,
            reason=f"imported from the {overview.client} CLI: {PROVES}",
            turns=count.replies,
            tool_calls=count.tool_calls,
            usage=count.usage,
            cost_usd=count.cost_usd,
            duration_s=between_ms(overview.started_at, overview.last_at) / 1000,
        )
    )
    return count


def _events(path: Path, client: ClientName, sources: dict[Path, TranscriptFile]) -> Iterator[Event]:
    for file, source in sources.items():
        digest = sha256()
        yield from file_events(file, path, client, source.agent, until=source.size_bytes, digest=digest)
        if digest.hexdigest() != source.sha256:
            raise RecordError(
                f"the transcript {str(file)!r} was changed while it was imported, so nothing was; try again"
            )


def _measured(session: Path) -> tuple[dict[Path, TranscriptFile], list[Event]]:
    """The session's files as they are now, and what is to be told of those that cannot be read."""
    sources = {session: _measure(session, session, None)}
    refused: list[Event] = []
    for one in subagent_files(session)[:MAX_FILES]:
        try:
            sources[one.path] = _measure(one.path, session, one.agent)
        except RingfenceError as exc:
            refused.append(unread(one.path, session, str(exc), one.agent))
    return sources, refused


def _measure(path: Path, session: Path, agent: str | None) -> TranscriptFile:
    digest: Any = sha256()
    size = 0
    with SourceFile(path, below=session.parent) as source:
        end = source.size
        while size < end and (chunk := source.read(min(_CHUNK_BYTES, end - size))):
            digest.update(chunk)
            size += len(chunk)
    shown = str(session) if path == session else label(path, session)
    return TranscriptFile(path=shown, size_bytes=size, sha256=digest.hexdigest(), agent=agent)


def _imported(path: Path, overview: Overview, sources: dict[Path, TranscriptFile]) -> SessionImported:
    return SessionImported(
        client=overview.client,
        client_version=overview.client_version,
        session_id=overview.session_id or path.stem[:200],
        files=list(sources.values()),
    )


def _earlier(told: SessionImported) -> str | None:
    """The run that holds the very same bytes of the same session, if there is one."""
    bytes_of_it = [(file.size_bytes, file.sha256) for file in told.files]
    for directory in run_dirs():
        event = _second_event(directory)
        if (
            isinstance(event, SessionImported)
            and event.session_id == told.session_id
            and [(file.size_bytes, file.sha256) for file in event.files] == bytes_of_it
        ):
            return directory.name
    return None


def _second_event(directory: Path) -> Event | None:
    with suppress(RecordError):
        for record in itertools.islice(read(directory), 1, 2):
            return record.event
    return None


def _result(
    run_id: str, told: SessionImported, *, events: int = 0, damaged: int = 0, is_new: bool = True
) -> ImportedSession:
    client: ClientName = "codex" if told.client == "codex" else "claude"
    return ImportedSession(
        run_id=run_id,
        client=client,
        client_version=told.client_version,
        session_id=told.session_id,
        files=tuple(told.files),
        events=events,
        damaged=damaged,
        is_new=is_new,
    )
