"""Translates the session files of the claude CLI, and its output in the format `stream-json`.

A session file, `projects/<directory>/<session>.jsonl`, has one record for each content block of a reply, all with the
reply's id and usage, a record for each result of a tool, and bookkeeping in between. It has no record of the end.
The output has nearly the same records; differences are marked below. Observed with 2.1.112, 2.1.197 and 2.1.329.
"""

from typing import Any

import msgspec

from ringfence.events import (
    ConversationCompacted,
    Event,
    JSONObject,
    MessageSent,
    ModelRetried,
    Origin,
    TextStreamed,
    Usage,
)
from ringfence.model.usage import MessagesUsage
from ringfence.runtime.transcript.record import Record
from ringfence.runtime.transcript.translator import (
    MAX_HELD_BLOCKS,
    Overview,
    Reply,
    SessionTranslator,
    blocks_of,
    count_of,
    dict_of,
    list_of,
    plain,
    seconds_of,
    short,
    text_of,
    texts_of,
    time_of,
)

_SYNTHETIC = "<synthetic>"
_TYPED = ("<command-", "<local-command-")
"""Prefixes of the text into which the CLI converts its own commands, such as `/clear`."""
_CHATTER = frozenset({"thinking_tokens", "status", "task_progress"})
_REQUEST_FAILED = "a request to the model failed"


class ClaudeTranslator(SessionTranslator):
    """Translates the records of the claude CLI.

    Args:
        file: The file that the events' origins name.
        agent: The sub-agent that the file belongs to.
        is_output: Whether it is the program's output. A reply there is returned as soon as it calls a tool, since the
            tool runs before the next line arrives, and has no usage: the counts in the output are those at the reply's
            beginning.
    """

    def __init__(self, file: str, agent: str | None = None, *, is_output: bool = False) -> None:
        super().__init__(file, agent)
        self._is_output = is_output
        self._counted: tuple[str, Usage] = ("", Usage())

    def read(self, record: Record) -> list[Event]:
        """Return the events of a record; those of a reply with the record after its last block."""
        value = record.value
        kind, subtype = text_of(value.get("type")), text_of(value.get("subtype"))
        if self._is_output and kind == "system" and subtype in _CHATTER:
            return []
        if kind == "stream_event":
            return _streamed(value)
        origin = self._origin(record, _agent_of(value))
        if kind == "assistant" and not _is_fault(value):
            return self._replied(value, origin)
        return [*self.flush(), *self._other(kind, subtype, record, origin)]

    def update_overview(self, record: Record, overview: Overview) -> None:
        """Enter the session's id, version, directory, time, prompt and model."""
        value = record.value
        overview.session_id = overview.session_id or short(value.get("sessionId"))
        overview.client_version = overview.client_version or short(value.get("version"))
        overview.workspace = overview.workspace or text_of(value.get("cwd"))
        overview.started_at = overview.started_at or time_of(value.get("timestamp"))
        message = dict_of(value.get("message"))
        if value.get("type") == "user" and not value.get("isMeta") and not overview.prompt:
            prompt = texts_of(message.get("content"))
            overview.prompt = "" if prompt.startswith(_TYPED) else prompt
        if value.get("type") == "assistant" and message.get("model") != _SYNTHETIC:
            overview.model = overview.model or short(message.get("model"))

    def _replied(self, value: JSONObject, origin: Origin) -> list[Event]:
        message = dict_of(value.get("message"))
        message_id = short(message.get("id"))
        events: list[Event] = []
        if self._reply is None or self._reply.message_id != message_id or not message_id:
            events = self.flush()
            self._reply = Reply(origin, message_id, short(message.get("model")), stop_reason="")
        blocks = blocks_of(message.get("content"))
        reply = self._hold(blocks, origin)
        reply.stop_reason = short(message.get("stop_reason")) or reply.stop_reason
        reply.usage = Usage() if self._is_output else _usage(message.get("usage"))
        if self._is_output and (
            len(reply.blocks) >= MAX_HELD_BLOCKS or any(block.get("type") == "tool_use" for block in blocks)
        ):
            events += self.flush()
        return events

    def _usage_of(self, reply: Reply) -> Usage:
        """Return a reply's usage without the part that was counted with earlier blocks of the same reply."""
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

    def _other(self, kind: str, subtype: str, record: Record, origin: Origin) -> list[Event]:
        value = record.value
        if kind == "user" and "message" in value:
            return self._sent(dict_of(value["message"]).get("content"), origin)
        if kind == "system" and subtype == "api_error":
            error = dict_of(value.get("error"))
            reason = text_of(error.get("formatted")) or text_of(error.get("message"))
            return [_retried(value, origin, ("retryAttempt", "retryInMs"), error.get("status"), reason)]
        if kind == "system" and subtype == "api_retry":
            reason = text_of(value.get("error"))
            return [_retried(value, origin, ("attempt", "retry_delay_ms"), value.get("error_status"), reason)]
        if kind == "system" and subtype == "compact_boundary":
            return [ConversationCompacted(origin=origin, dropped_results=0, reason="by the claude CLI")]
        return [self._noted(record, origin, *_note(kind, value))]

    def _sent(self, content: Any, origin: Origin) -> list[Event]:
        return [
            *(
                self._returned(
                    text_of(block.get("tool_use_id")),
                    plain(block.get("content")),
                    origin,
                    is_error=bool(block.get("is_error")),
                )
                for block in blocks_of(content)
                if block.get("type") == "tool_result"
            ),
            MessageSent(origin=origin, content=content),
        ]


def sub_agent_of(value: JSONObject) -> str:
    """Return the sub-agent that a line of the output belongs to, or "" for the agent itself."""
    parent = short(value.get("parent_tool_use_id"))
    return (short(value.get("agent_id")) or parent) if parent else ""


def _agent_of(value: JSONObject) -> str | None:
    if value.get("isSidechain") is True:
        return short(value.get("agentId")) or "sub-agent"
    return sub_agent_of(value) or None


def _is_fault(value: JSONObject) -> bool:
    """Whether an apparent reply represents an error of the API."""
    return bool(value.get("isApiErrorMessage") or value.get("error"))


def _usage(value: Any) -> Usage:
    try:
        return msgspec.convert(value, MessagesUsage).update(Usage())
    except msgspec.ValidationError:
        return Usage()


def _retried(value: JSONObject, origin: Origin, keys: tuple[str, str], status: Any, reason: str) -> Event:
    """Return the event of a retry, whose attempt and wait have different keys in a file and in the output."""
    attempt, wait_ms = (value.get(key) for key in keys)
    return ModelRetried(
        origin=origin,
        attempt=count_of(attempt),
        status=count_of(status) or None,
        reason=reason or _REQUEST_FAILED,
        wait_s=seconds_of(wait_ms),
    )


def _streamed(value: JSONObject) -> list[Event]:
    delta = dict_of(dict_of(value.get("event")).get("delta"))
    text = text_of(delta.get("text"))
    is_own_text = delta.get("type") == "text_delta" and text and not sub_agent_of(value)
    return [TextStreamed(text=text)] if is_own_text else []


def _note(kind: str, value: JSONObject) -> tuple[str, str]:
    """Return the kind of note that a record becomes, and its text for the user."""
    subtype = short(value.get("subtype"))
    if kind == "assistant":
        return "api_error", texts_of(dict_of(value.get("message")).get("content"))
    if kind == "system":
        return f"system.{subtype}", _system_text(subtype, value)
    if kind == "result":
        return f"result.{subtype}", _problem(value)
    if kind == "attachment":
        attached = dict_of(value.get("attachment"))
        name = short(attached.get("type"))
        texts = {
            "max_turns_reached": f"the limit of {count_of(attached.get('maxTurns'))} turns was reached",
            "queued_command": text_of(attached.get("prompt")),
        }
        return f"attachment.{name}", texts.get(name, "")
    return short(kind) or "unknown", text_of(value.get("summary")) if kind == "summary" else ""


def _system_text(subtype: str, value: JSONObject) -> str:
    if subtype == "permission_denied":
        return f"{short(value.get('tool_name'))} was not permitted: {text_of(value.get('message'))}"
    if subtype == "init":
        return _missing(value)
    return text_of(value.get("content"))


def _missing(value: JSONObject) -> str:
    """Return the MCP servers and plugins that did not start, and without which the CLI continues."""
    servers = [dict_of(each) for each in list_of(value.get("mcp_servers"))]
    failed = [short(server.get("name")) for server in servers if server.get("status") == "failed"]
    lines = [f"MCP servers that did not start: {', '.join(failed)}"] if failed else []
    plugins = [dict_of(each) for each in list_of(value.get("plugin_errors"))]
    return "\n".join([*lines, *(text_of(each.get("message")) for each in plugins)])


def _problem(value: JSONObject) -> str:
    """Return the text of a result that is an error."""
    if value.get("is_error") is not True:
        return ""
    return text_of(value.get("result")) or "\n".join(text_of(each) for each in list_of(value.get("errors")))
