"""What `codex exec --json` prints, as events. Seen with 0.169.0.

It prints items, not replies: what was thought and said before a call is told with the call as one reply, so replies are
not counted here. Of a command that runs for longer than 10 s it tells the beginning only, as it goes on with the model
meanwhile: such a call returns when the turn ends. Only `turn.failed` is a failure: `error` may be a retry.
"""

import re

import msgspec

from ringfence.events import Event, MessageSent, ModelReplied, ModelRetried, Origin, ToolReturned, Usage
from ringfence.runtime.client.lines import RecordStream
from ringfence.runtime.transcript.base import Overview, Translator, blocks_of, dict_of, plain, short, text_of
from ringfence.runtime.transcript.record import JSONObject, Record, is_deep

_ORIGIN = "codex:stdout"
_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_RETRY = re.compile(r"Reconnecting\.\.\. (\d{1,4})/\d{1,4}")
_STATUS = re.compile(r"unexpected status (\d{3})\b")
_HELD_BLOCKS = 64
_UNTOLD = "codex did not tell its end: it ran for longer than 10 s, or until codex ended"
"""The result of a call that never returned; what the model saw of it is in its requests."""


class CodexStream(RecordStream):
    """Reads its output."""

    def __init__(self) -> None:
        self._own = _Translator(_ORIGIN)
        super().__init__("codex", self._own)

    def flush(self) -> list[Event]:
        """What waited for more, and the ends of calls that were never told."""
        return [*super().flush(), *self._own.abandon()]

    def _note(self, value: JSONObject) -> None:
        kind, item = value.get("type"), dict_of(value.get("item"))
        session = value.get("thread_id")
        if kind == "thread.started" and isinstance(session, str) and _SESSION.fullmatch(session):
            self.session_id = self.session_id or session
        if kind == "item.completed" and item.get("type") == "agent_message":
            self.final_text = text_of(item.get("text")) or self.final_text
        if kind == "turn.completed":
            self.structured_output = _parsed(self.final_text)


class _Translator(Translator):
    client = "codex"

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._content: list[JSONObject] = []
        self._begun_at: Origin | None = None
        self._message = 0

    def read(self, record: Record) -> list[Event]:
        kind, item = text_of(record.value.get("type")), dict_of(record.value.get("item"))
        origin = self._origin(record)
        if kind in ("item.started", "item.completed") and item:
            return self._item(kind, item, record, origin)
        retry = _RETRY.match(text_of(record.value.get("message"))) if kind == "error" else None
        if retry is not None:
            return [*self.flush(), _retried(text_of(record.value.get("message")), int(retry[1]), origin)]
        ends = self.abandon() if kind in ("turn.completed", "turn.failed") else []
        noted = self._noted(record, origin, short(kind) or "unknown", _says(record.value))
        return [*self.flush(), *ends, noted]

    def abandon(self) -> list[Event]:
        """The ends of calls whose results are never told."""
        open_calls, self._calls = self._calls, {}
        origin = Origin(file=self.file, line=self._line, agent=self.agent)
        return [
            ToolReturned(
                origin=origin, call_id=call_id, tool=tool, is_error=False, content=_UNTOLD, duration_ms=0.0
            )
            for call_id, (tool, _) in open_calls.items()
        ]

    def flush(self) -> list[Event]:
        """What was thought and said, as it is."""
        content, self._content = self._content, []
        if not content or self._begun_at is None:
            return []
        self._message += 1
        calls = [block for block in content if block["type"] == "tool_use"]
        replied = ModelReplied(
            origin=self._begun_at,
            model="",
            message_id=f"reply_{self._message}",
            content=content,
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(),
            cost_usd=None,
            duration_ms=0.0,
            request_digest="",
        )
        return [replied, *(self._called(block, self._begun_at) for block in calls)]

    def look(self, record: Record, overview: Overview) -> None:
        """Its session."""
        overview.session_id = overview.session_id or short(record.value.get("thread_id"))

    def _item(self, kind: str, item: JSONObject, record: Record, origin: Origin) -> list[Event]:
        what = text_of(item.get("type"))
        if what == "agent_message" and kind == "item.completed":
            return self._hold({"type": "text", "text": text_of(item.get("text"))}, origin)
        if what == "reasoning" and kind == "item.completed":
            return self._hold({"type": "thinking", "thinking": text_of(item.get("text"))}, origin)
        call = _call(what, item)
        if call is None:
            says = text_of(item.get("message")) if what == "error" else ""
            return [*self.flush(), self._noted(record, origin, f"{kind}.{short(what) or 'unknown'}", says)]
        events: list[Event] = []
        if call["id"] not in self._calls:
            events = [*self._hold(call, origin), *self.flush()]
        return events if kind == "item.started" else [*events, *self._ended(call, what, item, origin)]

    def _hold(self, block: JSONObject, origin: Origin) -> list[Event]:
        """Keep a piece of a reply."""
        if not self._content:
            self._begun_at = origin
        self._content.append(block)
        return self.flush() if len(self._content) >= _HELD_BLOCKS else []

    def _ended(self, call: JSONObject, what: str, item: JSONObject, origin: Origin) -> list[Event]:
        tool, duration_ms = self._call_of(call["id"], origin.at)
        content, is_error = _result(what, item)
        result: JSONObject = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
        return [
            ToolReturned(
                origin=origin,
                call_id=call["id"],
                tool=tool,
                is_error=is_error,
                content=content,
                duration_ms=duration_ms,
            ),
            MessageSent(origin=origin, content=[result | ({"is_error": True} if is_error else {})]),
        ]


def _call(what: str, item: JSONObject) -> JSONObject | None:
    """A call as the Messages API has it; None if the item is none."""
    call_id = short(item.get("id"))
    if what == "command_execution":
        return _used(call_id, what, {"command": text_of(item.get("command"))})
    if what == "file_change":
        return _used(call_id, what, {"changes": item.get("changes")})
    if what == "web_search":
        return _used(call_id, what, {"query": text_of(item.get("query"))})
    if what == "mcp_tool_call":
        given = item.get("arguments")
        name = f"mcp__{short(item.get('server'))}__{short(item.get('tool'))}"
        return _used(call_id, name, given if isinstance(given, dict) else {"input": given})
    return None


def _used(call_id: str, name: str, given: JSONObject) -> JSONObject:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _result(what: str, item: JSONObject) -> tuple[str, bool]:
    """What a call gave, and whether that is an error."""
    is_failed = item.get("status") in ("failed", "declined")
    if what == "command_execution":
        return text_of(item.get("aggregated_output")), is_failed or item.get("exit_code") not in (0, None)
    if what == "mcp_tool_call":
        error = text_of(dict_of(item.get("error")).get("message")) or text_of(item.get("error"))
        content = plain(blocks_of(dict_of(item.get("result")).get("content")))
        return (error or content), is_failed or bool(item.get("error"))
    return short(item.get("status")), is_failed


def _says(value: JSONObject) -> str:
    return text_of(value.get("message")) or text_of(dict_of(value.get("error")).get("message"))


def _retried(message: str, attempt: int, origin: Origin) -> Event:
    status = _STATUS.search(message)
    return ModelRetried(
        origin=origin,
        attempt=attempt,
        status=int(status[1]) if status is not None else None,
        reason=message,
        wait_s=0.0,
    )


def _parsed(text: str) -> object:
    """The answer as JSON; None if it is none, or so deep that the record could not be read back."""
    try:
        value: object = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return None if isinstance(value, dict | list) and is_deep(value) else value
