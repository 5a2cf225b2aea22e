"""Translates the session files of the codex CLI, called rollouts, and its output with `--json`.

A rollout, `sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl`, has lines {timestamp, ordinal, type, payload}. A reply
consists of separate items (reasoning, message, calls), with its usage in a record after them. `task_complete` and
`turn_aborted` end a turn, not the session.

The output has another format: it prints items, not replies. Reasoning and messages before a call are returned with the
call as one reply. For a command that runs longer than 10 s only the beginning is printed, as the CLI continues with the
model meanwhile: such a call returns when the turn ends. Only `turn.failed` is a failure: `error` may be a retry.

Observed with 0.169.0.
"""

import re
from typing import Any

import msgspec

from ringfence.events import (
    ConversationCompacted,
    Event,
    JSONObject,
    MessageSent,
    ModelRetried,
    Origin,
    Usage,
)
from ringfence.runtime.transcript.record import Record
from ringfence.runtime.transcript.translator import (
    MAX_HELD_BLOCKS,
    Overview,
    Reply,
    SessionTranslator,
    Translator,
    blocks_of,
    count_of,
    dict_of,
    plain,
    short,
    text_of,
    time_of,
)

RETRY_STATUS = re.compile(r"unexpected status (\d{3})\b")

_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text"})
_RETRY = re.compile(r"Reconnecting\.\.\. (\d{1,4})/\d{1,4}")
_NO_RESULT = "codex did not report its end: it ran for longer than 10 s, or until codex ended"
"""The result of a call that never returned; the part that the model saw is in its requests."""


class RolloutTranslator(SessionTranslator):
    """Translates rollouts."""

    def __init__(self, file: str, agent: str | None = None) -> None:
        super().__init__(file, agent)
        self._model = ""
        self._uncounted = Usage()

    def read(self, record: Record) -> list[Event]:
        """Return the events of a record; those of a reply with the record of its usage, or with what follows it."""
        kind, payload = text_of(record.value.get("type")), dict_of(record.value.get("payload"))
        item = text_of(payload.get("type"))
        origin = self._origin(record)
        if kind == "response_item":
            return self._item(item, payload, record, origin)
        if kind == "token_usage_record":
            self._uncounted += _usage(payload.get("usage"))
            return [*self.flush(), self._noted(record, origin, kind)]
        if kind == "turn_context":
            self._model = short(payload.get("model")) or self._model
        if kind == "compacted":
            compacted = ConversationCompacted(origin=origin, dropped_results=0, reason="by the codex CLI")
            return [*self.flush(), compacted]
        name = f"{short(kind) or 'unknown'}.{short(item)}" if item else short(kind) or "unknown"
        # Other records may come between the items of a reply and do not end it.
        ended = self.flush() if item in ("task_complete", "turn_aborted") else []
        return [*ended, self._noted(record, origin, name, _rollout_text(item, payload))]

    def update_overview(self, record: Record, overview: Overview) -> None:
        """Enter the session's id, version, directory, time, prompt and model."""
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
            overview.prompt = _prompt(payload)

    def _usage_of(self, reply: Reply) -> Usage:  # noqa: ARG002 -- usage is in separate records
        usage, self._uncounted = self._uncounted, Usage()
        return usage

    def _item(self, kind: str, payload: JSONObject, record: Record, origin: Origin) -> list[Event]:
        role = payload.get("role")
        if kind == "message" and role == "user":
            content = [_block(block) for block in blocks_of(payload.get("content"))]
            return [*self.flush(), MessageSent(origin=origin, content=content)]
        if kind == "message" and role == "assistant":
            blocks = [_block(block) for block in blocks_of(payload.get("content"))]
            return self._extend_reply(blocks, origin, short(payload.get("id")))
        if kind == "reasoning":
            return self._extend_reply([_thought(payload)], origin)
        if kind in _CALLS:
            return self._extend_reply([_call(kind, payload)], origin)
        if kind in _OUTPUTS:
            return [*self.flush(), *self._output(payload, origin)]
        name = f"{kind}.{short(role)}" if role else kind
        return [*self.flush(), self._noted(record, origin, f"response_item.{short(name)}")]

    def _extend_reply(self, blocks: list[JSONObject], origin: Origin, message_id: str = "") -> list[Event]:
        reply = self._hold(blocks, origin)
        reply.model = self._model
        reply.message_id = message_id or reply.message_id
        return []

    def _output(self, payload: JSONObject, origin: Origin) -> list[Event]:
        output = payload.get("output")
        content = plain(dict_of(output).get("content", output))  # older versions: {content, success}
        is_error = dict_of(output).get("success") is False
        return self._returned_and_sent(text_of(payload.get("call_id")), content, origin, is_error=is_error)


class OutputTranslator(Translator):
    """Translates the output of `codex exec --json`."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._replies = 0

    def read(self, record: Record) -> list[Event]:
        """Return the events of a record."""
        kind, item = text_of(record.value.get("type")), dict_of(record.value.get("item"))
        message = text_of(record.value.get("message"))
        origin = self._origin(record)
        if kind in ("item.started", "item.completed") and item:
            return self._item(kind, item, record, origin)
        retry = _RETRY.match(message) if kind == "error" else None
        if retry is not None:
            return [*self.flush(), _retried(message, int(retry[1]), origin)]
        ended = self.end() if kind in ("turn.completed", "turn.failed") else self.flush()
        text = message or text_of(dict_of(record.value.get("error")).get("message"))
        return [*ended, self._noted(record, origin, short(kind) or "unknown", text)]

    def end(self) -> list[Event]:
        """Return the pending reply, and the ends of calls whose results were never printed."""
        events = self.flush()
        origin = Origin(file=self.file, line=self._line, agent=self.agent)
        return [
            *events,
            *(self._returned(call_id, _NO_RESULT, origin, is_error=False) for call_id in [*self._open_calls]),
        ]

    def _item(self, kind: str, item: JSONObject, record: Record, origin: Origin) -> list[Event]:
        what = text_of(item.get("type"))
        if what == "agent_message" and kind == "item.completed":
            return self._add({"type": "text", "text": text_of(item.get("text"))}, origin)
        if what == "reasoning" and kind == "item.completed":
            return self._add({"type": "thinking", "thinking": text_of(item.get("text"))}, origin)
        call = _item_call(what, item)
        if call is None:
            text = text_of(item.get("message")) if what == "error" else ""
            return [*self.flush(), self._noted(record, origin, f"{kind}.{short(what) or 'unknown'}", text)]
        events: list[Event] = []
        if call["id"] not in self._open_calls:
            events = [*self._add(call, origin), *self.flush()]
        if kind == "item.started":
            return events
        content, is_error = _result(what, item)
        return [*events, *self._returned_and_sent(call["id"], content, origin, is_error=is_error)]

    def _add(self, block: JSONObject, origin: Origin) -> list[Event]:
        """Add a block to the pending reply."""
        if self._reply is None:
            self._replies += 1
        reply = self._hold([block], origin)
        reply.message_id = f"reply_{self._replies}"
        return self.flush() if len(reply.blocks) >= MAX_HELD_BLOCKS else []


def _block(block: JSONObject) -> JSONObject:
    """Convert a content block to the Messages API's shape; return one of an unknown type unchanged."""
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
    if kind == "local_shell_call":
        return _tool_use(call_id, "local_shell", _arguments(payload.get("action")))
    arguments = _arguments(payload.get("arguments", payload.get("input")))
    return _tool_use(call_id, text_of(payload.get("name")), arguments)


def _tool_use(call_id: str, name: str, arguments: JSONObject) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _arguments(given: Any) -> JSONObject:
    try:
        known = msgspec.json.decode(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        known = None
    return known if isinstance(known, dict) else {"input": given}


def _usage(value: Any) -> Usage:
    """Return usage as the Messages API counts it; in the Responses API cached tokens are part of the input."""
    usage = dict_of(value)
    cached, written = (count_of(usage.get(f"{name}_input_tokens")) for name in ("cached", "cache_write"))
    return Usage(
        input_tokens=max(0, count_of(usage.get("input_tokens")) - cached - written),
        output_tokens=count_of(usage.get("output_tokens")),
        cache_creation_input_tokens=written,
        cache_read_input_tokens=cached,
    )


def _prompt(payload: JSONObject) -> str:
    if payload.get("type") == "user_message":
        return text_of(payload.get("message"))
    item = dict_of(payload.get("item"))
    if item.get("type") != "UserMessage":
        return ""
    return "\n".join(text_of(block.get("text")) for block in blocks_of(item.get("content")))


def _rollout_text(kind: str, payload: JSONObject) -> str:
    """Return the user's text for a record that is not part of the conversation."""
    if kind == "turn_aborted":
        return f"the turn was stopped: {short(payload.get('reason')) or 'no reason given'}"
    return text_of(payload.get("message")) if kind in ("error", "stream_error", "warning") else ""


def _item_call(what: str, item: JSONObject) -> JSONObject | None:
    """Return an item of the output as a tool call; None if it is not a call."""
    call_id = short(item.get("id"))
    if what == "command_execution":
        return _tool_use(call_id, what, {"command": text_of(item.get("command"))})
    if what == "file_change":
        return _tool_use(call_id, what, {"changes": item.get("changes")})
    if what == "web_search":
        return _tool_use(call_id, what, {"query": text_of(item.get("query"))})
    if what == "mcp_tool_call":
        given = item.get("arguments")
        name = f"mcp__{short(item.get('server'))}__{short(item.get('tool'))}"
        return _tool_use(call_id, name, given if isinstance(given, dict) else {"input": given})
    return None


def _result(what: str, item: JSONObject) -> tuple[str, bool]:
    """Return the result of a call, and whether it is an error."""
    is_failed = item.get("status") in ("failed", "declined")
    if what == "command_execution":
        return text_of(item.get("aggregated_output")), is_failed or item.get("exit_code") not in (0, None)
    if what == "mcp_tool_call":
        error = text_of(dict_of(item.get("error")).get("message")) or text_of(item.get("error"))
        content = plain(blocks_of(dict_of(item.get("result")).get("content")))
        return (error or content), is_failed or bool(item.get("error"))
    return short(item.get("status")), is_failed


def _retried(message: str, attempt: int, origin: Origin) -> Event:
    status = RETRY_STATUS.search(message)
    return ModelRetried(
        origin=origin,
        attempt=attempt,
        status=int(status[1]) if status is not None else None,
        reason=message,
        wait_s=0.0,
    )
