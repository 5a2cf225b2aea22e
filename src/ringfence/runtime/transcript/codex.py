"""Rollouts of the codex CLI: `sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`. Seen with 0.169.0.

Each line is {timestamp, ordinal, type, payload}. A reply comes as items (reasoning, message, calls) of their
own, with what it used in a record after them. `task_complete` and `turn_aborted` end a turn, not the session.
"""

from typing import Any

import msgspec

from ringfence.events import (
    ConversationCompacted,
    Event,
    MessageSent,
    ModelReplied,
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
    plain,
    short,
    text_of,
    time_of,
)
from ringfence.runtime.transcript.record import JSONObject, Record

_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text"})


class CodexTranslator(Translator):
    """Reads rollouts of the codex CLI."""

    client = "codex"

    def __init__(self, file: str, agent: str | None = None) -> None:
        super().__init__(file, agent)
        self._content: list[tuple[JSONObject, Origin]] = []
        self._message_id = ""
        self._model = ""
        self._unspent = Usage()

    def read(self, record: Record) -> list[Event]:
        """The events of a record; a reply's with the record of what it used, or what follows it."""
        kind, payload = text_of(record.value.get("type")), dict_of(record.value.get("payload"))
        below = text_of(payload.get("type"))
        origin = self._origin(record)
        if kind == "response_item":
            return self._item(below, payload, record, origin)
        if kind == "token_usage_record":
            self._unspent += _usage(payload.get("usage"))
            return [*self.flush(), self._noted(record, origin, kind)]
        if kind == "turn_context":
            self._model = short(payload.get("model")) or self._model
        if kind == "compacted":
            return [
                *self.flush(),
                ConversationCompacted(origin=origin, dropped_results=0, reason="by the codex CLI"),
            ]
        name = f"{short(kind) or 'unknown'}.{short(below)}" if below else short(kind) or "unknown"
        # Items that are told of while a reply comes do not end it.
        held = self.flush() if below in ("task_complete", "turn_aborted") else []
        return [*held, self._noted(record, origin, name, _says(below, payload))]

    def flush(self) -> list[Event]:
        """The items of a reply as far as they have come."""
        if not self._content:
            return []
        items, usage = self._content, self._unspent
        self._content, self._unspent = [], Usage()
        calls = [(block, origin) for block, origin in items if block["type"] == "tool_use"]
        replied = ModelReplied(
            origin=items[0][1],
            model=self._model,
            message_id=self._message_id,
            content=[block for block, _ in items],
            stop_reason="tool_use" if calls else "end_turn",
            usage=usage,
            cost_usd=cost_of(self._model, usage),
            duration_ms=0.0,
            request_digest="",
        )
        self._message_id = ""
        return [replied, *(self._called(block, origin) for block, origin in calls)]

    def look(self, record: Record, overview: Overview) -> None:
        """Who, where, what was asked and which model answered."""
        kind, payload = record.value.get("type"), dict_of(record.value.get("payload"))
        overview.started_at = overview.started_at or time_of(record.value.get("timestamp"))
        if kind == "session_meta" and not overview.session_id:
            overview.session_id = short(payload.get("id"))
            overview.client_version = short(payload.get("cli_version"))
            overview.workspace = text_of(payload.get("cwd"))
        if kind == "turn_context":
            overview.model = overview.model or short(payload.get("model"))
            overview.workspace = overview.workspace or text_of(payload.get("cwd"))
        if kind == "event_msg" and not overview.prompt:
            overview.prompt = _asked(payload)

    def _item(self, kind: str, payload: JSONObject, record: Record, origin: Origin) -> list[Event]:
        role = payload.get("role")
        if kind == "message" and role == "user":
            content = [_block(block) for block in blocks_of(payload.get("content"))]
            return [*self.flush(), MessageSent(origin=origin, content=content)]
        if kind == "message" and role == "assistant":
            self._message_id = short(payload.get("id"))
            return self._add([_block(block) for block in blocks_of(payload.get("content"))], origin)
        if kind == "reasoning":
            return self._add([_thought(payload)], origin)
        if kind in _CALLS:
            return self._add([_call(kind, payload)], origin)
        if kind in _OUTPUTS:
            return [*self.flush(), *self._returned(payload, origin)]
        name = f"{kind}.{short(role)}" if role else kind
        return [*self.flush(), self._noted(record, origin, f"response_item.{short(name)}")]

    def _add(self, blocks: list[JSONObject], origin: Origin) -> list[Event]:
        self._content += [(block, origin) for block in blocks]
        return []

    def _returned(self, payload: JSONObject, origin: Origin) -> list[Event]:
        call_id = text_of(payload.get("call_id"))
        tool, duration_ms = self._call_of(call_id, origin.at)
        output = payload.get("output")
        content = dict_of(output).get("content", output)  # older ones: {content, success}
        text = plain(content)
        is_error = dict_of(output).get("success") is False
        returned = ToolReturned(
            origin=origin,
            call_id=call_id,
            tool=tool,
            is_error=is_error,
            content=text,
            duration_ms=duration_ms,
        )
        result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return [
            returned,
            MessageSent(origin=origin, content=[result | ({"is_error": True} if is_error else {})]),
        ]


def _block(block: JSONObject) -> JSONObject:
    """A content block in the Messages API's shape; one of another kind as it is."""
    if block.get("type") in _TEXTS:
        return {"type": "text", "text": text_of(block.get("text"))}
    return {**block, "type": short(block.get("type")) or "unknown"}


def _thought(payload: JSONObject) -> JSONObject:
    parts = [*blocks_of(payload.get("summary")), *blocks_of(payload.get("content"))]
    thought = {"type": "thinking", "thinking": "\n".join(text_of(part.get("text")) for part in parts)}
    sealed = payload.get("encrypted_content")
    return {**thought, "signature": sealed} if isinstance(sealed, str) else thought


def _call(kind: str, payload: JSONObject) -> JSONObject:
    call_id = text_of(payload.get("call_id")) or text_of(payload.get("id"))
    name, given = text_of(payload.get("name")), payload.get("arguments", payload.get("input"))
    if kind == "local_shell_call":
        name, given = "local_shell", payload.get("action")
    return {"type": "tool_use", "id": call_id, "name": name, "input": _arguments(given)}


def _arguments(given: Any) -> JSONObject:
    if isinstance(given, dict):
        return given
    try:
        known = msgspec.json.decode(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        known = None
    return known if isinstance(known, dict) else {"input": given}


def _usage(value: Any) -> Usage:
    """Tokens as the Responses API counts them: the cached ones are part of the input."""
    usage = dict_of(value)
    cached, written = (count_of(usage.get(f"{name}_input_tokens")) for name in ("cached", "cache_write"))
    return Usage(
        input_tokens=max(0, count_of(usage.get("input_tokens")) - cached - written),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
    )


def _asked(payload: JSONObject) -> str:
    if payload.get("type") == "user_message":
        return text_of(payload.get("message"))
    item = dict_of(payload.get("item"))
    if item.get("type") != "UserMessage":
        return ""
    return "\n".join(text_of(block.get("text")) for block in blocks_of(item.get("content")))


def _says(kind: str, payload: JSONObject) -> str:
    """What a record that is no part of the conversation says to people."""
    if kind == "turn_aborted":
        return f"the turn was stopped: {short(payload.get('reason')) or 'no reason given'}"
    if kind in ("error", "stream_error", "warning"):
        return text_of(payload.get("message"))
    return ""
