"""What `claude --output-format stream-json` prints, as events. Seen with 2.1.329.

A reply comes block by block; one is told as soon as it calls a tool, or with the line after it. What it used is not
told here: the counts of the stream are those at the reply's beginning. `result` is not the end of the output.
"""

import re

from ringfence.events import Event, ModelRetried, Origin, TextStreamed, Usage
from ringfence.runtime.client.lines import RecordStream
from ringfence.runtime.transcript.base import blocks_of, count_of, dict_of, number_of, short, text_of
from ringfence.runtime.transcript.claude import ClaudeTranslator
from ringfence.runtime.transcript.record import JSONObject, Record

_ORIGIN = "claude:stdout"
_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_CHATTER = frozenset({"thinking_tokens", "status", "task_progress"})
_HELD_BLOCKS = 64


class ClaudeStream(RecordStream):
    """Reads its output."""

    def __init__(self) -> None:
        super().__init__("claude", _Translator(_ORIGIN))

    def _note(self, value: JSONObject) -> None:
        session = value.get("session_id")
        if self.session_id is None and isinstance(session, str) and _SESSION.fullmatch(session):
            self.session_id = session
        if value.get("type") == "result":
            self.final_text = text_of(value.get("result")) or self.final_text
            self.structured_output = value.get("structured_output", self.structured_output)
        elif value.get("type") == "assistant" and not _parent(value):
            blocks = blocks_of(dict_of(value.get("message")).get("content"))
            said = "\n".join(text_of(block.get("text")) for block in blocks if block.get("type") == "text")
            self.final_text = said or self.final_text


class _Translator(ClaudeTranslator):
    """Its names differ from those in the session's file."""

    def read(self, record: Record) -> list[Event]:
        value = record.value
        kind, subtype = text_of(value.get("type")), text_of(value.get("subtype"))
        if kind == "system" and subtype in _CHATTER:
            return []
        if kind == "stream_event":
            return _streamed(value)
        if kind == "assistant":
            return [*super().read(record), *self._told()]
        if kind == "system" and subtype == "api_retry":
            return [*self.flush(), _retried(value, self._origin(record))]
        return super().read(record)

    def _told(self) -> list[Event]:
        """What has come of a reply, if it calls a tool, which is begun before the next line comes; or is long."""
        content = self._reply.content if self._reply is not None else []
        is_calling = any(block.get("type") == "tool_use" for block in content)
        return self.flush() if is_calling or len(content) >= _HELD_BLOCKS else []

    def _is_fault(self, value: JSONObject) -> bool:
        return bool(value.get("error")) or super()._is_fault(value)

    def _agent_of(self, value: JSONObject) -> str | None:
        return _parent(value) or None

    def _used(self, _reply: object, /) -> Usage:
        return Usage()

    def _note_of(self, kind: str, value: JSONObject) -> tuple[str, str]:
        if kind == "result":
            return f"result.{short(value.get('subtype'))}", _problem(value)
        if kind == "system":
            return f"system.{short(value.get('subtype'))}", _says(value)
        return super()._note_of(kind, value)


def _parent(value: JSONObject) -> str:
    """The sub-agent that a line is of."""
    parent = short(value.get("parent_tool_use_id"))
    return (short(value.get("agent_id")) or parent) if parent else ""


def _problem(value: JSONObject) -> str:
    """What a result that is an error says."""
    if value.get("is_error") is not True:
        return ""
    return text_of(value.get("result")) or "\n".join(text_of(each) for each in _list(value.get("errors")))


def _says(value: JSONObject) -> str:
    subtype = value.get("subtype")
    if subtype == "permission_denied":
        return f"{short(value.get('tool_name'))} was not permitted: {text_of(value.get('message'))}"
    if subtype == "init":
        return _missing(value)
    return text_of(value.get("content"))


def _missing(value: JSONObject) -> str:
    """What it goes on without."""
    servers = [dict_of(each) for each in _list(value.get("mcp_servers"))]
    failed = [short(server.get("name")) for server in servers if server.get("status") == "failed"]
    said = [f"MCP servers that did not start: {', '.join(failed)}"] if failed else []
    plugins = [dict_of(each) for each in _list(value.get("plugin_errors"))]
    return "\n".join([*said, *(text_of(each.get("message")) for each in plugins)])


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _retried(value: JSONObject, origin: Origin) -> Event:
    return ModelRetried(
        origin=origin,
        attempt=count_of(value.get("attempt")),
        status=count_of(value.get("error_status")) or None,
        reason=text_of(value.get("error")) or "a request to the model failed",
        wait_s=number_of(value.get("retry_delay_ms")) / 1000,
    )


def _streamed(value: JSONObject) -> list[Event]:
    delta = dict_of(dict_of(value.get("event")).get("delta"))
    text = text_of(delta.get("text"))
    return (
        [TextStreamed(text=text)] if delta.get("type") == "text_delta" and text and not _parent(value) else []
    )
