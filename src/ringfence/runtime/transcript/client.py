"""Whose transcript a file is, by its records: the first one that any client is known to write decides."""

import itertools
from pathlib import Path

from ringfence.errors import RecordError
from ringfence.runtime.transcript.base import ClientName, Overview, Translator
from ringfence.runtime.transcript.claude import ClaudeTranslator
from ringfence.runtime.transcript.codex import CodexTranslator
from ringfence.runtime.transcript.reading import read_items
from ringfence.runtime.transcript.record import Damage, Item, JSONObject, Record

_LOOKED_AT = 32
_HEAD_BYTES = 1024**2
_EXPECTED = (
    'expected a session of the claude CLI (lines of JSON objects with "type" and "sessionId") or a rollout of '
    'the codex CLI (with "timestamp", "type" and "payload")'
)
_CLAUDE_KEYS = frozenset({"sessionId", "parentUuid", "leafUuid", "messageId"})
_TRANSLATORS: dict[ClientName, type[Translator]] = {"claude": ClaudeTranslator, "codex": CodexTranslator}


def client_of(value: JSONObject) -> ClientName | None:
    """Who writes such a record; None if nobody is known to."""
    if not isinstance(value.get("type"), str):
        return None
    if isinstance(value.get("payload"), dict) and "timestamp" in value:
        return "codex"
    return "claude" if _CLAUDE_KEYS & value.keys() else None


def identify(path: Path) -> ClientName:
    """Whose transcript a file is.

    Raises:
        RecordError: It is nobody's; the text says at which line, and what was expected.
        UsageError: It is no file that can hold one.
    """
    items = itertools.islice(read_items(path), _LOOKED_AT)
    first: Item | None = None
    for item in items:
        first = first or item
        client = client_of(item.value) if isinstance(item, Record) else None
        if client is not None:
            return client
    if first is None:
        raise RecordError(
            f"{path}:1: the transcript is empty; {_EXPECTED}; `ringfence session follow` waits for its records"
        )
    raise unknown(path, first)


def unknown(path: Path, first: Item) -> RecordError:
    """The error that says that a file is no transcript, by its first line."""
    return RecordError(f"{path}:{first.line}: {_unlike(first)}; {_EXPECTED}")


def translator(client: ClientName, file: str, agent: str | None = None) -> Translator:
    """The reader of a client's files."""
    return _TRANSLATORS[client](file, agent)


def survey(path: Path) -> Overview:
    """What the beginning of a transcript says of its session.

    Raises:
        RecordError, UsageError: As `identify`.
    """
    client = identify(path)
    overview, reader = Overview(client=client), translator(client, str(path))
    for item in read_items(path, until_bytes=_HEAD_BYTES):
        if isinstance(item, Record):
            reader.look(item, overview)
            if overview.is_complete:
                break
    return overview


def _unlike(item: Item) -> str:
    if isinstance(item, Damage):
        return f"{item.reason}, so this is no transcript"
    if "session_id" in item.value:
        return "this is what the claude CLI prints (stream-json), not the file of its session"
    if {"seq", "prev", "event"} <= item.value.keys():
        return "this is a journal of ringfence; see `ringfence audit show`"
    return "this record is of no client that is known"
