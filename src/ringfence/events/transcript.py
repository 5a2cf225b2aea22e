"""What is read from the transcripts of other programs."""

from typing import Any

import msgspec

from ringfence.events.event import Event


class TranscriptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that version 0.1 imported: as many of its bytes as there were, and their hash."""

    path: str
    size_bytes: int
    sha256: str
    agent: str | None = None


class SessionImported(Event, frozen=True, kw_only=True, tag="session.imported"):
    """What follows was read from files of another program. It proves what they held then, not that it happened.

    Only version 0.1 wrote this event.
    """

    client: str
    """`claude` or `codex`."""
    client_version: str
    session_id: str
    files: list[TranscriptFile]


class TranscriptNoted(Event, frozen=True, kw_only=True, tag="transcript.noted"):
    """A record of a transcript that is no other event, kept as it was."""

    kind: str
    text: str
    """What it says to people; empty for bookkeeping."""
    record: Any


class TranscriptDamaged(Event, frozen=True, kw_only=True, tag="transcript.damaged"):
    """A place of a transcript that could not be read, or only in part; or its file changed while it was read."""

    reason: str
    offset: int
    """Of the line's first byte."""
    size_bytes: int
    sha256: str | None = None
