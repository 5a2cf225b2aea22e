"""What a client's reader does: records in, events of ours out."""

import re
from abc import ABC, abstractmethod
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec

from ringfence.events import Event, Origin, ToolCalled, TranscriptDamaged, TranscriptNoted, Usage
from ringfence.model.prices import cost
from ringfence.runtime.transcript.record import Damage, Item, JSONObject, Record

ClientName = Literal["claude", "codex"]

_TEXT_CHARS = 200
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_CALLS = 10_000


class Overview(msgspec.Struct, kw_only=True):
    """A session at a glance. Empty where its records did not say, or not yet."""

    client: ClientName
    client_version: str = ""
    session_id: str = ""
    workspace: str = ""
    prompt: str = ""
    model: str = ""
    started_at: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing more to find out."""
        return bool(self.client_version and self.session_id and self.workspace and self.prompt and self.model)


class Translator(ABC):
    """Turns the records of one file into events.

    Replies are written in pieces, and told when they are whole: with the next record, or by `flush`.

    Args:
        file: What the events' origin is to name.
        agent: The sub-agent whose file it is.
    """

    client: ClientName

    def __init__(self, file: str, agent: str | None = None) -> None:
        self.file = file
        self.agent = agent
        self._calls: dict[str, tuple[str, str | None]] = {}
        self._line = 0

    def translate(self, item: Item) -> list[Event]:
        """The events that a record makes known."""
        self._line = item.line
        if isinstance(item, Damage):
            return [*self.flush(), self._damaged(item)]
        return self.read(item)

    @abstractmethod
    def read(self, record: Record) -> list[Event]:
        """`translate`, for a record."""

    @abstractmethod
    def flush(self) -> list[Event]:
        """What waits for more, as it is. To be called at the end, or when nothing more comes for a while."""

    @abstractmethod
    def look(self, record: Record, overview: Overview) -> None:
        """Enter into `overview` what a record says of the session."""

    def _origin(self, record: Record, agent: str | None = None) -> Origin:
        at = time_of(record.value.get("timestamp"))
        return Origin(file=self.file, line=record.line, at=at or None, agent=agent or self.agent)

    def _damaged(self, damage: Damage) -> Event:
        origin = Origin(file=self.file, line=damage.line, agent=self.agent)
        return TranscriptDamaged(
            origin=origin,
            reason=damage.reason,
            offset=damage.offset,
            size_bytes=damage.size,
            sha256=damage.digest,
        )

    def _noted(self, record: Record, origin: Origin, kind: str, text: str = "") -> Event:
        return TranscriptNoted(origin=origin, kind=kind, text=text, record=record.value)

    def _called(self, block: JSONObject, origin: Origin) -> Event:
        """A call, remembered until it returns."""
        call_id, tool, arguments = text_of(block.get("id")), text_of(block.get("name")), block.get("input")
        if len(self._calls) >= _CALLS:
            self._calls.pop(next(iter(self._calls)))
        self._calls[_key(call_id)] = (short(tool), origin.at)
        known = arguments if isinstance(arguments, dict) else {"input": arguments}
        return ToolCalled(origin=origin, call_id=call_id, tool=tool, arguments=known)

    def _call_of(self, call_id: str, ended_at: str | None) -> tuple[str, float]:
        """The tool of a call that has returned, and how long it took as far as the times say, in ms."""
        tool, began_at = self._calls.pop(_key(call_id), ("unknown", None))
        return tool, between_ms(began_at, ended_at)


def _key(call_id: str) -> str:
    """What stands for a call while it is remembered; ids may be of any length."""
    if len(call_id) <= _TEXT_CHARS:
        return call_id
    return sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()


def text_of(value: Any) -> str:
    """A string as it is; what should be one and is not, as none."""
    return value if isinstance(value, str) else ""


def short(value: Any) -> str:
    """A string of bounded length: a name, an id, a time."""
    return text_of(value)[:_TEXT_CHARS]


def time_of(value: Any) -> str:
    """A time as the clients write it; anything else as none."""
    return value if isinstance(value, str) and _TIME.fullmatch(value) else ""


def dict_of(value: Any) -> JSONObject:
    """An object as it is; what should be one and is not, as an empty one."""
    return value if isinstance(value, dict) else {}


def blocks_of(value: Any) -> list[JSONObject]:
    """The content blocks of a message; a plain text is one."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A count as it is; what should be one and is not, as 0."""
    return value if type(value) is int and 0 <= value < 2**53 else 0


def number_of(value: Any) -> float:
    """A number that is not negative; what should be one and is not, as 0."""
    return float(value) if type(value) in (int, float) and 0 <= value < 2**53 else 0.0


def plain(content: Any) -> str:
    """The text of a tool's result; what is no text by its kind and size."""
    if isinstance(content, str):
        return content
    parts = []
    for block in blocks_of(content):
        text = block.get("text")
        size = len(msgspec.json.encode(block)) if not isinstance(text, str) else 0
        parts.append(text if isinstance(text, str) else f"[{short(block.get('type'))}, {size} bytes]")
    return "\n".join(parts)


def cost_of(model: str, usage: Usage) -> float | None:
    """What a reply cost, by today's prices; None if they are not known."""
    return cost(model, usage)


def between_ms(began_at: str | None, ended_at: str | None) -> float:
    """Milliseconds between two times as a transcript writes them; 0 where they make no sense."""
    try:
        began, ended = datetime.fromisoformat(began_at or ""), datetime.fromisoformat(ended_at or "")
        return max(0.0, round((ended - began).total_seconds() * 1000, 3))
    except (ValueError, TypeError, OverflowError):  # TypeError: one of them with a time zone
        return 0.0
