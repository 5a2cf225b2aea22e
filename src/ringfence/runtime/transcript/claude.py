"""Sessions of the claude CLI: `projects/<directory>/<session>.jsonl`. Seen with 2.1.112 and 2.1.329.

One record for each content block of a reply, all with the reply's id and usage; a record for each result of a
tool; bookkeeping in between. There is no record of the end: whether a session succeeded is not in it.
"""

from dataclasses import dataclass, field
from typing import Any

from ringfence.events import (
    ConversationCompacted,
    Event,
    MessageSent,
    ModelReplied,
    ModelRetried,
    Origin,
    ToolReturned,
    Usage,
)
from ringfence.runtime.transcript.base import (
    Overview,
    Translator,
    blocks_of,
    cost_of,
    count_of,
    dict_of,
    number_of,
    plain,
    short,
    text_of,
    time_of,
)
from ringfence.runtime.transcript.record import JSONObject, Record

_SYNTHETIC = "<synthetic>"
_TYPED = ("<command-", "<local-command-")
"""What the client makes of a command typed to itself, such as `/clear`."""


@dataclass
class _Reply:
    """A reply whose blocks are still coming."""

    message_id: str
    model: str
    origin: Origin
    content: list[JSONObject] = field(default_factory=list)
    stop_reason: str = ""
    usage: Usage = field(default_factory=Usage)


class ClaudeTranslator(Translator):
    """Reads sessions of the claude CLI."""

    client = "claude"

    def __init__(self, file: str, agent: str | None = None) -> None:
        super().__init__(file, agent)
        self._reply: _Reply | None = None
        self._counted: tuple[str, Usage] = ("", Usage())

    def read(self, record: Record) -> list[Event]:
        """The events of a record; a reply's with the record after its last block."""
        value = record.value
        origin = self._origin(record, self._agent_of(value))
        kind = text_of(value.get("type"))
        if kind == "assistant" and not self._is_fault(value):
            return self._replied(record, origin)
        return [*self.flush(), *self._other(kind, record, origin)]

    def flush(self) -> list[Event]:
        """The reply that may have further blocks, as it is."""
        reply, self._reply = self._reply, None
        if reply is None:
            return []
        usage = self._used(reply)
        replied = ModelReplied(
            origin=reply.origin,
            model=reply.model,
            message_id=reply.message_id,
            content=reply.content,
            stop_reason=reply.stop_reason,
            usage=usage,
            cost_usd=cost_of(reply.model, usage),
            duration_ms=0.0,
            request_digest="",
        )
        calls = [block for block in reply.content if block.get("type") == "tool_use"]
        return [replied, *(self._called(block, reply.origin) for block in calls)]

    def look(self, record: Record, overview: Overview) -> None:
        """Who, where, what was asked and which model answered."""
        value = record.value
        overview.session_id = overview.session_id or short(value.get("sessionId"))
        overview.client_version = overview.client_version or short(value.get("version"))
        overview.workspace = overview.workspace or text_of(value.get("cwd"))
        overview.started_at = overview.started_at or time_of(value.get("timestamp"))
        message = dict_of(value.get("message"))
        if value.get("type") == "user" and not value.get("isMeta") and not overview.prompt:
            asked = _asked(message.get("content"))
            overview.prompt = "" if asked.startswith(_TYPED) else asked
        if value.get("type") == "assistant" and message.get("model") != _SYNTHETIC:
            overview.model = overview.model or short(message.get("model"))

    def _is_fault(self, value: JSONObject) -> bool:
        """Whether what looks like a reply stands for an error of the API."""
        return bool(value.get("isApiErrorMessage"))

    def _agent_of(self, value: JSONObject) -> str | None:
        """The sub-agent whose record it is."""
        return (short(value.get("agentId")) or "sub-agent") if value.get("isSidechain") is True else None

    def _note_of(self, kind: str, value: JSONObject) -> tuple[str, str]:
        """What kind of note a record is, and what it says to people."""
        return _note(kind, value)

    def _replied(self, record: Record, origin: Origin) -> list[Event]:
        message = dict_of(record.value.get("message"))
        message_id = short(message.get("id"))
        events: list[Event] = []
        if self._reply is None or self._reply.message_id != message_id or not message_id:
            events = self.flush()
            self._reply = _Reply(message_id, short(message.get("model")), origin)
        self._reply.content += blocks_of(message.get("content"))
        self._reply.stop_reason = short(message.get("stop_reason")) or self._reply.stop_reason
        self._reply.usage = _usage(message.get("usage"))
        return events

    def _used(self, reply: _Reply, /) -> Usage:
        """Its usage, but for what was told with earlier blocks of the same reply."""
        known, counted = self._counted
        self._counted = (reply.message_id, reply.usage)
        if not reply.message_id or known != reply.message_id:
            return reply.usage
        return Usage(
            **{
                name: max(0, getattr(reply.usage, name) - getattr(counted, name))
                for name in Usage.__struct_fields__
            }
        )

    def _other(self, kind: str, record: Record, origin: Origin) -> list[Event]:
        value = record.value
        if kind == "user" and "message" in value:
            return self._heard(dict_of(value["message"]).get("content"), origin)
        if kind == "system" and value.get("subtype") == "api_error":
            return [_retried(value, origin)]
        if kind == "system" and value.get("subtype") == "compact_boundary":
            return [ConversationCompacted(origin=origin, dropped_results=0, reason="by the claude CLI")]
        name, text = self._note_of(kind, value)
        return [self._noted(record, origin, name, text)]

    def _heard(self, content: Any, origin: Origin) -> list[Event]:
        results = [block for block in blocks_of(content) if block.get("type") == "tool_result"]
        return [
            *(self._returned(block, origin) for block in results),
            MessageSent(origin=origin, content=content),
        ]

    def _returned(self, block: JSONObject, origin: Origin) -> Event:
        call_id = text_of(block.get("tool_use_id"))
        tool, duration_ms = self._call_of(call_id, origin.at)
        return ToolReturned(
            origin=origin,
            call_id=call_id,
            tool=tool,
            is_error=bool(block.get("is_error")),
            content=plain(block.get("content")),
            duration_ms=duration_ms,
        )


def _asked(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        text_of(block.get("text")) for block in blocks_of(content) if block.get("type") == "text"
    )


def _usage(value: Any) -> Usage:
    usage = dict_of(value)
    created, served = dict_of(usage.get("cache_creation")), dict_of(usage.get("server_tool_use"))
    return Usage(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_creation_input_tokens=count_of(usage.get("cache_creation_input_tokens")),
        cache_read_input_tokens=count_of(usage.get("cache_read_input_tokens")),
        cache_creation_1h_input_tokens=count_of(created.get("ephemeral_1h_input_tokens")),
        web_search_requests=count_of(served.get("web_search_requests")),
    )


def _retried(value: JSONObject, origin: Origin) -> Event:
    error = dict_of(value.get("error"))
    reason = (
        text_of(error.get("formatted")) or text_of(error.get("message")) or "a request to the model failed"
    )
    return ModelRetried(
        origin=origin,
        attempt=count_of(value.get("retryAttempt")),
        status=count_of(error.get("status")) or None,
        reason=reason,
        wait_s=number_of(value.get("retryInMs")) / 1000,
    )


def _note(kind: str, value: JSONObject) -> tuple[str, str]:
    if kind == "assistant":
        return "api_error", _asked(dict_of(value.get("message")).get("content"))
    if kind == "system":
        return f"system.{short(value.get('subtype'))}", text_of(value.get("content"))
    if kind == "attachment":
        attached = dict_of(value.get("attachment"))
        name = short(attached.get("type"))
        says = {
            "max_turns_reached": f"the limit of {count_of(attached.get('maxTurns'))} turns was reached",
            "queued_command": text_of(attached.get("prompt")),
        }
        return f"attachment.{name}", says.get(name, "")
    if kind == "summary":
        return kind, text_of(value.get("summary"))
    return short(kind) or "unknown", ""
