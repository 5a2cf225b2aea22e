"""Sessions that the claude and codex CLIs wrote, read as events of ours: listed, shown and followed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.runtime.transcript.base import ClientName, Overview
    from ringfence.runtime.transcript.client import identify, survey
    from ringfence.runtime.transcript.places import (
        FoundSession,
        encode_workspace,
        find_session,
        list_sessions,
    )
    from ringfence.runtime.transcript.reading import TranscriptReader, read_items
    from ringfence.runtime.transcript.session import follow_events, opening, read_events

_HOMES = {
    "ClientName": "base",
    "FoundSession": "places",
    "Overview": "base",
    "TranscriptReader": "reading",
    "encode_workspace": "places",
    "find_session": "places",
    "follow_events": "session",
    "identify": "client",
    "list_sessions": "places",
    "opening": "session",
    "read_events": "session",
    "read_items": "reading",
    "survey": "client",
}

__all__ = [
    "ClientName",
    "FoundSession",
    "Overview",
    "TranscriptReader",
    "encode_workspace",
    "find_session",
    "follow_events",
    "identify",
    "list_sessions",
    "opening",
    "read_events",
    "read_items",
    "survey",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
