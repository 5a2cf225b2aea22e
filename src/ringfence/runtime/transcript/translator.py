"""Base of the translators from an agent CLI's JSON records to Ringfence's events.

Records are hostile: the functions at the end read a field as one type and treat anything else as absent.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec

from ringfence.events import (
    Event,
    JSONObject,
    MessageSent,
    ModelReplied,
    Origin,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    Usage,
)
from ringfence.model.prices import PriceList
from ringfence.runtime.transcript.record import Damage, Item, Record

CliName = Literal["claude", "codex"]

MAX_HELD_BLOCKS = 64
"""Limit of blocks; in an output, a reply with more blocks is returned in parts."""

_SHORT_CHARS = 200
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_MAX_OPEN_CALLS = 10_000
_PRICES = PriceList()


class Overview(msgspec.Struct, kw_only=True):
    """An overview of a session. A field is empty if no record has provided it yet."""

    client: CliName
    client_version: str = ""
    session_id: str = ""
    workspace: str = ""
    prompt: str = ""
    model: str = ""
    started_at: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all fields are known."""
        return bool(self.client_version and self.session_id and self.workspace and self.prompt and self.model)


@dataclass
class Reply:
    """A reply of the model, of which more blocks may follow."""

    origin: Origin
    message_id: str = ""
    model: str = ""
    blocks: list[tuple[JSONObject, Origin]] = field(default_factory=list)
    stop_reason: str | None = None
    """The stop reason; None: `tool_use` or `end_turn`, depending on whether the reply calls a tool."""
    usage: Usage = field(default_factory=Usage)


class Translator(ABC):
    """Turns the records of one file or output into events.

    A reply arrives in pieces. Its event is returned when the reply is complete: with the record that follows it, or by
    `flush`.

    Args:
        file: The file that the events' origins name.
        agent: The sub-agent that the file belongs to.
    """

    def __init__(self, file: str, agent: str | None = None) -> None:
        self.file = file
        self.agent = agent
        self._reply: Reply | None = None
        self._open_calls: dict[str, tuple[str, str | None]] = {}
        self._line = 0

    def translate(self, item: Item) -> list[Event]:
        """Return the events that a record completes."""
        self._line = item.line
        if not isinstance(item, Damage):
            return self.read(item)
        damaged = TranscriptDamaged(
            origin=Origin(file=self.file, line=item.line, agent=self.agent),
            reason=item.reason,
            offset=item.offset,
            size_bytes=item.size,
            sha256=item.digest,
        )
        return [*self.flush(), damaged]

    @abstractmethod
    def read(self, record: Record) -> list[Event]:
        """`translate`, for a record that could be parsed."""

    def flush(self) -> list[Event]:
        """Return the pending reply as far as it has arrived, with its tool calls."""
        reply, self._reply = self._reply, None
        if reply is None:
            return []
        usage = self._usage_of(reply)
        calls = [(block, origin) for block, origin in reply.blocks if block.get("type") == "tool_use"]
        implied = "tool_use" if calls else "end_turn"
        replied = ModelReplied(
            origin=reply.origin,
            model=reply.model,
            message_id=reply.message_id,
            content=[block for block, _ in reply.blocks],
            stop_reason=implied if reply.stop_reason is None else reply.stop_reason,
            usage=usage,
            cost_usd=_PRICES.cost(reply.model, usage),
            duration_ms=0.0,
            request_digest="",
        )
        return [replied, *(self._called(block, origin) for block, origin in calls)]

    def end(self) -> list[Event]:
        """Return the pending events when no more records will follow."""
        return self.flush()

    def _usage_of(self, reply: Reply) -> Usage:
        return reply.usage

    def _hold(self, blocks: Iterable[JSONObject], origin: Origin) -> Reply:
        """Add blocks to the pending reply."""
        self._reply = self._reply or Reply(origin)
        self._reply.blocks += [(block, origin) for block in blocks]
        return self._reply

    def _origin(self, record: Record, agent: str | None = None) -> Origin:
        at = time_of(record.value.get("timestamp"))
        return Origin(file=self.file, line=record.line, at=at or None, agent=agent or self.agent)

    def _noted(self, record: Record, origin: Origin, kind: str, text: str = "") -> Event:
        return TranscriptNoted(origin=origin, kind=kind, text=text, record=record.value)

    def _called(self, block: JSONObject, origin: Origin) -> Event:
        """Return the event of a tool call, which stays open until its result arrives."""
        call_id, tool, arguments = text_of(block.get("id")), text_of(block.get("name")), block.get("input")
        if len(self._open_calls) >= _MAX_OPEN_CALLS:
            self._open_calls.pop(next(iter(self._open_calls)))
        self._open_calls[_key(call_id)] = (short(tool), origin.at)
        known = arguments if isinstance(arguments, dict) else {"input": arguments}
        return ToolCalled(origin=origin, call_id=call_id, tool=tool, arguments=known)

    def _returned(self, call_id: str, content: str, origin: Origin, *, is_error: bool) -> Event:
        """Return the event of a tool's result. Its duration is 0 if the transcript has no usable times."""
        tool, began_at = self._open_calls.pop(_key(call_id), ("unknown", None))
        return ToolReturned(
            origin=origin,
            call_id=call_id,
            tool=tool,
            is_error=is_error,
            content=content,
            duration_ms=_between_ms(began_at, origin.at),
        )

    def _returned_and_sent(
        self, call_id: str, content: str, origin: Origin, *, is_error: bool
    ) -> list[Event]:
        """Return the events of a tool's result and of the message that carries it to the model."""
        result: JSONObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        message = MessageSent(origin=origin, content=[result | ({"is_error": True} if is_error else {})])
        return [self._returned(call_id, content, origin, is_error=is_error), message]


class SessionTranslator(Translator):
    """Turns the records of a session's file into events."""

    @abstractmethod
    def update_overview(self, record: Record, overview: Overview) -> None:
        """Update `overview` with a record's information about its session."""


def _key(call_id: str) -> str:
    """Return a key of bounded length for an id, which may have any length."""
    if len(call_id) <= _SHORT_CHARS:
        return call_id
    return sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def _between_ms(began_at: str | None, ended_at: str | None) -> float:
    try:
        began, ended = datetime.fromisoformat(began_at or ""), datetime.fromisoformat(ended_at or "")
        return max(0.0, round((ended - began).total_seconds() * 1000, 3))
    except (ValueError, TypeError, OverflowError):  # TypeError: only one of them has a time zone
        return 0.0


def text_of(value: Any) -> str:
    """Return a string unchanged, and "" for anything else."""
    return value if isinstance(value, str) else ""


def short(value: Any) -> str:
    """Return a string of bounded length: a name, an id, a time."""
    return text_of(value)[:_SHORT_CHARS]


def time_of(value: Any) -> str:
    """Return a time as the agent CLIs write it, and "" for anything else."""
    return value if isinstance(value, str) and _TIME.fullmatch(value) else ""


def dict_of(value: Any) -> JSONObject:
    """Return an object unchanged, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a list unchanged, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def blocks_of(value: Any) -> list[JSONObject]:
    """Return the content blocks of a message; a plain string is one text block."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [block for block in list_of(value) if isinstance(block, dict)]


def count_of(value: Any) -> int:
    """Return a count unchanged, and 0 for anything else."""
    return value if type(value) is int and 0 <= value < 2**53 else 0


def seconds_of(milliseconds: Any) -> float:
    """Return a number of milliseconds in seconds, and 0 for anything that is not a number or is negative."""
    is_number = type(milliseconds) in (int, float) and 0 <= milliseconds < 2**53
    return float(milliseconds) / 1000 if is_number else 0.0


def texts_of(content: Any) -> str:
    """Return the text blocks of a message, one per line."""
    return "\n".join(
        text_of(block.get("text")) for block in blocks_of(content) if block.get("type") == "text"
    )


def plain(content: Any) -> str:
    """Return the text of a tool's result; other blocks are named by their type and size."""
    if isinstance(content, str):
        return content
    parts = []
    for block in blocks_of(content):
        text = block.get("text")
        size = len(msgspec.json.encode(block)) if not isinstance(text, str) else 0
        parts.append(text if isinstance(text, str) else f"[{short(block.get('type'))}, {size} bytes]")
    return "\n".join(parts)
