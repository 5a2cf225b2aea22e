"""Reads a session as events: those of its own file, and those of its sub-agents' files."""

import os
import re
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import RingfenceError
from ringfence.events import Event, JobCreated, Origin, TranscriptDamaged
from ringfence.frozen import frozen
from ringfence.runtime.transcript.discovery import cli_of, identify, open_translator, unknown
from ringfence.runtime.transcript.reader import TranscriptReader, opened_folder, read_items
from ringfence.runtime.transcript.record import Item, Record
from ringfence.runtime.transcript.translator import CliName, Overview, Translator

IMPORTED = "imported"
"""The name of the runtime of sessions that Ringfence did not run."""
MAX_FILES = 512
"""The maximum number of sub-agents of one session that are read; if there are more, that is reported."""

_SETTLED_S = 0.2
"""Time without additions after which a reply counts as complete."""
_LOOK_AGAIN_S = 0.5
_CHUNKS_AT_ONCE = 8
_QUIET_S = 5.0
_UNKNOWN_ITEMS = 32
_UNKNOWN_S = 1.0
"""The maximum number of lines, and the longest time, without a record that shows which CLI writes the file."""
_NAME = re.compile(r"agent-([A-Za-z0-9_-]{1,100})\.jsonl")


@frozen
class SubagentFile:
    """The file of one sub-agent: `<session>/subagents/agent-<id>.jsonl` beside `<session>.jsonl`."""

    agent: str
    path: Path


def subagent_files(session: Path) -> list[SubagentFile]:
    """Return the files of a session's sub-agents, the oldest first; at most one more than `MAX_FILES`.

    There are none if the directory is a link or cannot be read.
    """
    directory = session.parent / session.stem / "subagents"
    try:
        with (
            opened_folder(session.parent, (session.stem, "subagents")) as fd,
            os.scandir(fd) as entries,
        ):
            names = sorted(
                (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
                for entry in entries
                if _NAME.fullmatch(entry.name)
            )
    except (OSError, ValueError):
        return []
    return [
        SubagentFile(name[len("agent-") : -len(".jsonl")], directory / name)
        for _, name in names[: MAX_FILES + 1]
    ]


def opening(overview: Overview, session: Path, job_id: str) -> JobCreated:
    """Return the first event of a session that Ringfence did not run: its task."""
    return JobCreated(
        origin=Origin(file=session.name, line=1, at=overview.started_at or None),
        job_id=job_id,
        session_id=overview.session_id,
        prompt=overview.prompt,
        model=overview.model or "unknown",
        runtime=IMPORTED,
        toolset=overview.client,
        workspace=overview.workspace,
        version=overview.client_version,
    )


def read_events(session: Path) -> Iterator[Event]:
    """Yield the events of a session in the order of its file, then those of each sub-agent's.

    Raises:
        RecordError, UsageError: The session's file is not a transcript, or cannot be read.
    """
    cli = identify(session)
    yield from file_events(session, session, cli, None)
    files = subagent_files(session)
    for one in files[:MAX_FILES]:
        try:
            yield from file_events(one.path, session, cli, one.agent)
        except RingfenceError as exc:  # a file that is missing or is not a file does not hide the others
            yield unread(one.path, session, str(exc), one.agent)
    if len(files) > MAX_FILES:
        yield unread(session, session, f"there are more than {MAX_FILES} sub-agents; the others are not read")


def file_events(path: Path, session: Path, cli: CliName, agent: str | None) -> Iterator[Event]:
    """Yield the events of one file of a session.

    Args:
        path: The file.
        session: The session's own file.
        cli: The agent CLI that wrote it.
        agent: The sub-agent that the file belongs to.

    Raises:
        RecordError, UsageError: It cannot be read.
    """
    translator = open_translator(cli, _label(path, session), agent)
    for item in read_items(path, below=session.parent):
        yield from translator.translate(item)
    yield from translator.end()


def unread(path: Path, session: Path, reason: str, agent: str | None = None) -> Event:
    """Return the event that reports a file of a session that cannot be read."""
    origin = Origin(file=_label(path, session), line=1, agent=agent)
    return TranscriptDamaged(origin=origin, reason=reason, offset=0, size_bytes=0)


def _label(path: Path, session: Path) -> str:
    """Return the name of a session's file, relative to the session's directory."""
    return str(path.relative_to(session.parent))


async def follow_events(
    session: Path, *, from_end: bool = False, idle_s: float | None = None, poll_s: float = 0.05
) -> AsyncGenerator[Event, None]:
    """Yield the events of a session and its sub-agents, then those that are added, until cancelled.

    Args:
        session: The session's file; it may be empty at first.
        from_end: Skip existing contents.
        idle_s: End when nothing was added for this long.
        poll_s: The interval between reads.

    Raises:
        RecordError, UsageError: It is not a transcript, or was replaced by something other than a file.
    """
    followed = await anyio.to_thread.run_sync(_FollowedSession, session, from_end)
    last = time.monotonic()
    try:
        while True:
            events, has_read = await anyio.to_thread.run_sync(followed.poll)
            for event in events:
                yield event
            if has_read:
                last = time.monotonic()
            elif idle_s is not None and time.monotonic() - last >= idle_s:
                break
            else:
                await anyio.sleep(poll_s)
        for event in followed.end():
            yield event
    finally:
        followed.close()


class _FollowedFile:
    """One file that grows. Its first known record shows which CLI writes it."""

    def __init__(self, path: Path, session: Path, agent: str | None, *, from_end: bool) -> None:
        self._path, self._session, self._agent = path, session, agent
        self._reader = TranscriptReader(path, below=session.parent)
        self._translator: Translator | None = None
        self._unidentified: list[Item] = []
        self._read_at = self._polled_at = time.monotonic()
        if from_end:
            while (items := self._reader.take()) is not None:
                self._translate(items)
            self._flush()

    def poll(self) -> tuple[list[Event], bool]:
        """Return the events that were added, and whether anything was read."""
        now = time.monotonic()
        is_quiet = self._agent is not None and now - self._read_at > _QUIET_S
        if is_quiet and now - self._polled_at < _LOOK_AGAIN_S:
            return [], False  # there may be hundreds of sub-agents that have ended
        self._polled_at = now
        items: list[Item] = []
        has_read = False
        for _ in range(_CHUNKS_AT_ONCE):
            taken = self._reader.take()
            if taken is None:
                break
            items += taken
            has_read = True
        if has_read:
            self._read_at = time.monotonic()
        elif (change := self._reader.reopen_if_changed()) is not None:
            items.append(change)
        events = self._translate(items)
        if now - self._read_at >= _SETTLED_S:
            events += self._flush()
        if self._unidentified and now - self._read_at >= _UNKNOWN_S:
            raise unknown(self._path, self._unidentified[0])
        return events, has_read

    def end(self) -> list[Event]:
        """Return the remaining events when the file is not expected to grow."""
        events = self._translate(self._reader.rest())
        if self._unidentified:
            raise unknown(self._path, self._unidentified[0])
        return [*events, *self._flush()]

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _flush(self) -> list[Event]:
        return self._translator.flush() if self._translator is not None else []

    def _translate(self, items: list[Item]) -> list[Event]:
        if self._translator is None:
            items = self._identify(items)
        if self._translator is None:
            return []
        return [event for item in items for event in self._translator.translate(item)]

    def _identify(self, items: list[Item]) -> list[Item]:
        """Return all items so far once one of them shows which CLI writes the file."""
        self._unidentified += items
        clis = (cli_of(item.value) for item in self._unidentified if isinstance(item, Record))
        cli = next((cli for cli in clis if cli is not None), None)
        if cli is None:
            if len(self._unidentified) >= _UNKNOWN_ITEMS:
                raise unknown(self._path, self._unidentified[0])
            return []
        self._translator = open_translator(cli, _label(self._path, self._session), self._agent)
        identified, self._unidentified = self._unidentified, []
        return identified


class _FollowedSession:
    """A session's file and those of its sub-agents, as they appear."""

    def __init__(self, session: Path, from_end: bool) -> None:
        self._session = session
        self._files = {session: _FollowedFile(session, session, None, from_end=from_end)}
        self._refused: set[Path] = set()
        self._looked_at = 0.0
        if from_end:
            self._look(from_end=True)

    def poll(self) -> tuple[list[Event], bool]:
        """Return the events that were added to any file, and whether anything was read."""
        events = self._look() if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S else []
        has_read_any = False
        for path, file in list(self._files.items()):
            try:
                added, has_read = file.poll()
            except RingfenceError as exc:
                if path == self._session:
                    raise
                added, has_read = [self._drop(path, f"{exc}; it is not followed any more")], False
            events += added
            has_read_any = has_read_any or has_read
        return events, has_read_any

    def end(self) -> list[Event]:
        """Return the remaining events of all files."""
        return [event for file in self._files.values() for event in file.end()]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _look(self, *, from_end: bool = False) -> list[Event]:
        """Open the files of new sub-agents."""
        self._looked_at = time.monotonic()
        events: list[Event] = []
        for one in subagent_files(self._session):
            if one.path in self._files or one.path in self._refused or len(self._files) > MAX_FILES:
                continue
            try:
                file = _FollowedFile(one.path, self._session, one.agent, from_end=from_end)
            except RingfenceError as exc:
                self._refused.add(one.path)
                events.append(unread(one.path, self._session, str(exc), one.agent))
            else:
                self._files[one.path] = file
        return events

    def _drop(self, path: Path, reason: str) -> Event:
        self._files.pop(path).close()
        self._refused.add(path)
        return unread(path, self._session, reason)
