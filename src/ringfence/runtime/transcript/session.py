"""A session as events: that of its own file, and those of its sub-agents' files."""

import os
import re
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import anyio.to_thread

from ringfence.errors import RingfenceError
from ringfence.events import Event, JobCreated, Origin, TranscriptDamaged
from ringfence.frozen import frozen
from ringfence.runtime.transcript.discovery import cli_of, identify, open_translator, unknown
from ringfence.runtime.transcript.reader import TranscriptReader, read_items
from ringfence.runtime.transcript.record import Item, Record
from ringfence.runtime.transcript.translator import CliName, Overview, Translator

IMPORTED = "imported"
"""The runtime of sessions that were not made here."""

_SETTLED_S = 0.2
_LOOK_AGAIN_S = 0.5
_AT_ONCE = 8
_QUIET_S = 5.0
_LOOK_AT_QUIET_S = 0.5
_UNKNOWN_ITEMS = 32
_UNKNOWN_S = 1.0
"""So long a file may hold lines of which none says whose it is."""


MAX_FILES = 512
"""More sub-agents of one session are not read; that is told."""

_NAME = re.compile(r"agent-([A-Za-z0-9_-]{1,100})\.jsonl")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@frozen
class SubagentFile:
    """The file of one sub-agent: `<session>/subagents/agent-<id>.jsonl` beside `<session>.jsonl`."""

    agent: str
    path: Path


def subagent_files(session: Path) -> list[SubagentFile]:
    """The files of a session's sub-agents, the oldest first; at most one more than `MAX_FILES`.

    There are none where the directory is a link or cannot be read.
    """
    directory = session.parent / session.stem / "subagents"
    with ExitStack() as stack:
        try:
            fd = os.open(session.parent / session.stem, _DIRECTORY)
            stack.callback(os.close, fd)
            fd = os.open("subagents", _DIRECTORY, dir_fd=fd)
            stack.callback(os.close, fd)
            with os.scandir(fd) as entries:
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
    """What was asked, as the first event of a session that was made elsewhere."""
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


def label(path: Path, session: Path) -> str:
    """The name of a session's file, from the directory that the session is in."""
    return str(path.relative_to(session.parent))


def read_events(session: Path) -> Iterator[Event]:
    """The events of a session in the order of its file, then those of each sub-agent's.

    Raises:
        RecordError, UsageError: The session's file is no transcript, or cannot be read.
    """
    client = identify(session)
    yield from file_events(session, session, client, None)
    for one in subagent_files(session)[:MAX_FILES]:
        yield from _subagent_events(one.path, session, client, one.agent)
    if len(subagent_files(session)) > MAX_FILES:
        yield unread(session, session, f"there are more than {MAX_FILES} sub-agents; the others are not read")


def file_events(path: Path, session: Path, client: CliName, agent: str | None) -> Iterator[Event]:
    """The events of one file of a session.

    Args:
        path: The file.
        session: The session's own file.
        client: Who wrote it.
        agent: The sub-agent whose it is.

    Raises:
        RecordError, UsageError: It cannot be read.
    """
    told = open_translator(client, label(path, session), agent)
    for item in read_items(path, below=session.parent):
        yield from told.translate(item)
    yield from told.flush()


def _subagent_events(path: Path, session: Path, client: CliName, agent: str) -> Iterator[Event]:
    try:
        yield from file_events(path, session, client, agent)
    except RingfenceError as exc:  # one that is not there or no file does not hide the others
        yield unread(path, session, str(exc), agent)


def unread(path: Path, session: Path, reason: str, agent: str | None = None) -> Event:
    """What is told of a session's file that cannot be read."""
    origin = Origin(file=label(path, session), line=1, agent=agent)
    return TranscriptDamaged(origin=origin, reason=reason, offset=0, size_bytes=0)


async def follow_events(
    session: Path, *, from_end: bool = False, idle_s: float | None = None, poll_s: float = 0.05
) -> AsyncGenerator[Event, None]:
    """The events of a session and its sub-agents, then those that are added, until cancelled.

    Args:
        session: The session's file; it may be empty still.
        from_end: Leave out what is in it already.
        idle_s: End when nothing was added for so long.
        poll_s: How often to look for more.

    Raises:
        RecordError, UsageError: It is no transcript, or what came in its place is no file.
    """
    followed = await anyio.to_thread.run_sync(_Followed, session, from_end)
    last = time.monotonic()
    try:
        while True:
            events, is_read = await anyio.to_thread.run_sync(followed.poll)
            for event in events:
                yield event
            if is_read:
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
    """One file that grows. Whose it is shows with its first record."""

    def __init__(self, path: Path, session: Path, agent: str | None, *, from_end: bool) -> None:
        self._path, self._session, self._agent = path, session, agent
        self.reader = TranscriptReader(path, below=session.parent)
        self._translator: Translator | None = None
        self._waiting: list[Item] = []
        self._quiet_since = self._looked_at = time.monotonic()
        if from_end:
            self._pass_over()

    def poll(self) -> tuple[list[Event], bool]:
        """What was added, and whether anything was."""
        now = time.monotonic()
        is_quiet = self._agent is not None and now - self._quiet_since > _QUIET_S
        if is_quiet and now - self._looked_at < _LOOK_AT_QUIET_S:
            return [], False  # there may be hundreds of sub-agents that have ended
        self._looked_at = now
        items: list[Item] = []
        is_read = False
        for _ in range(_AT_ONCE):
            taken = self.reader.take()
            if taken is None:
                break
            items += taken
            is_read = True
        if is_read:
            self._quiet_since = time.monotonic()
        else:
            told = self.reader.reopen_if_changed()
            items += [told] if told is not None else []
        events = self._events(items)
        quiet_s = now - self._quiet_since
        if self._translator is not None and quiet_s >= _SETTLED_S:
            events += self._translator.flush()
        if self._waiting and quiet_s >= _UNKNOWN_S:
            raise unknown(self._path, self._waiting[0])
        return events, is_read

    def end(self) -> list[Event]:
        """What is left when nothing more is waited for."""
        events = self._events(self.reader.rest())
        if self._waiting:
            raise unknown(self._path, self._waiting[0])
        return [*events, *(self._translator.flush() if self._translator is not None else [])]

    def _pass_over(self) -> None:
        while (items := self.reader.take()) is not None:
            self._events(items)
        if self._translator is not None:
            self._translator.flush()

    def _events(self, items: list[Item]) -> list[Event]:
        if self._translator is None:
            self._waiting += items
            items = self._known()
        if self._translator is None:
            return []
        return [event for item in items for event in self._translator.translate(item)]

    def _known(self) -> list[Item]:
        """What waited, once it is known whose it is."""
        clients = (cli_of(item.value) for item in self._waiting if isinstance(item, Record))
        client = next((client for client in clients if client is not None), None)
        if client is None:
            if len(self._waiting) >= _UNKNOWN_ITEMS:
                raise unknown(self._path, self._waiting[0])
            return []
        self._translator = open_translator(client, label(self._path, self._session), self._agent)
        known, self._waiting = self._waiting, []
        return known


class _Followed:
    """A session's file and those of its sub-agents, as they come."""

    def __init__(self, session: Path, from_end: bool) -> None:
        self._session = session
        self._files = {session: _FollowedFile(session, session, None, from_end=from_end)}
        self._refused: set[Path] = set()
        self._looked_at = 0.0
        if from_end:
            self._look(from_end=True)

    def poll(self) -> tuple[list[Event], bool]:
        """What was added to any of them, and whether anything was."""
        events = self._look() if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S else []
        is_any_read = False
        for path, file in list(self._files.items()):
            try:
                added, is_read = file.poll()
            except RingfenceError as exc:
                if path == self._session:
                    raise
                added, is_read = [self._drop(path, f"{exc}; it is not followed any more")], False
            events += added
            is_any_read = is_any_read or is_read
        return events, is_any_read

    def end(self) -> list[Event]:
        """What is left of all of them."""
        return [event for file in self._files.values() for event in file.end()]

    def close(self) -> None:
        """Let go of the files."""
        for file in self._files.values():
            file.reader.close()

    def _look(self, *, from_end: bool = False) -> list[Event]:
        """Take up the files of new sub-agents."""
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
        self._files.pop(path).reader.close()
        self._refused.add(path)
        return unread(path, self._session, reason)
