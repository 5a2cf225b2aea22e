"""Records of the claude CLI become events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtime.transcript.conftest import translated

from ringfence.events import (
    ConversationCompacted,
    Event,
    MessageSent,
    ModelReplied,
    ModelRetried,
    Origin,
    ToolCalled,
    ToolReturned,
    TranscriptNoted,
    Usage,
)
from ringfence.runtime.claude.transcript import ClaudeTranslator
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.transcript.session import file_events


def _events(*values: dict[str, Any]) -> list[Event]:
    return translated(ClaudeTranslator("s.jsonl"), *values)


def _kind(kind: type[Any], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def _block(message: str, *content: dict[str, Any], output_tokens: int = 5, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": output_tokens}
    return {
        "type": "assistant",
        "message": {"id": message, "model": "claude-opus-4-5", "content": list(content), "usage": usage},
        **more,
    }


def test_a_session_reads_as_one_of_ours(claude: Path) -> None:
    """Prompt, replies, calls and results of a real session come in the order and shape of our own events."""
    events = list(file_events(claude, claude, "claude", None))
    names = [event.name for event in events if not isinstance(event, TranscriptNoted)]
    assert names == [
        "message.sent",
        "model.replied",
        "tool.called",
        "tool.called",
        *(["tool.returned", "message.sent"] * 2),
        "model.replied",
        "tool.called",
        "tool.returned",
        "message.sent",
        "model.retried",
        "model.replied",
    ]
    assert [call.arguments.get("command") for call in _kind(ToolCalled, events)] == [
        "echo one; echo two >&2",
        "exit 3",
        None,
    ]
    failed = [(each.tool, each.is_error) for each in _kind(ToolReturned, events)]
    assert failed == [("Bash", False), ("Bash", True), ("Agent", False)]


def test_the_conversation_can_be_held_again(claude: Path) -> None:
    """The events fold to a conversation with alternating roles in which every call has its result."""
    messages = Conversation.from_events(file_events(claude, claude, "claude", None)).messages
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3
    calls = [block["id"] for message in messages for block in message["content"] if "input" in block]
    results = [
        block["tool_use_id"]
        for message in messages
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    ]
    assert calls == results


def test_every_event_says_where_it_was_read(claude: Path) -> None:
    """File, line and the time in the transcript."""
    events = list(file_events(claude, claude, "claude", None))
    first = next(event for event in events if isinstance(event, MessageSent))
    assert first.origin == Origin(file=claude.name, line=3, at="2026-01-02T03:04:05.583Z")
    assert all(isinstance(event.origin, Origin) for event in events)


def test_searches_and_caches_that_last_an_hour_cost() -> None:
    """By the same prices as in our own runs."""
    record = _block("m", {"type": "text", "text": "a"}, output_tokens=0)
    record["message"]["usage"] = {
        "cache_creation_input_tokens": 1_000_000,
        "cache_creation": {"ephemeral_1h_input_tokens": 1_000_000},
        "server_tool_use": {"web_search_requests": 100},
    }
    (reply,) = _kind(ModelReplied, _events(record))
    assert reply.cost_usd == 5.0 * 2 + 1.0


def test_blocks_of_one_reply_are_one_reply() -> None:
    """A reply is written block by block, each with the usage of the whole; it counts once."""
    text, call = {"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "Bash", "input": {}}
    (reply, called) = _events(_block("m", text), _block("m", call))
    assert isinstance(reply, ModelReplied)
    assert (reply.content, reply.usage) == ([text, call], Usage(input_tokens=10, output_tokens=5))
    assert isinstance(called, ToolCalled)


def test_a_reply_in_two_parts_is_counted_once(said: Callable[..., dict[str, Any]]) -> None:
    """Where something stands between the blocks, the second part brings only what the first did not count."""
    text = {"type": "text", "text": "a"}
    events = _events(_block("m", text, output_tokens=3), {"type": "mode"}, _block("m", text, output_tokens=8))
    assert sum((reply.usage for reply in _kind(ModelReplied, events)), Usage()).total == 18


def test_an_error_of_the_api_is_no_reply() -> None:
    """What the client writes in the model's name is told as a note."""
    record = _block("x", {"type": "text", "text": "API Error: 403"}, isApiErrorMessage=True)
    (note,) = _events(record)
    assert isinstance(note, TranscriptNoted)
    assert (note.kind, note.text) == ("api_error", "API Error: 403")


def test_records_of_other_events() -> None:
    """A retry and a compaction have events of ours."""
    retried, compacted = _events(
        {
            "type": "system",
            "subtype": "api_error",
            "retryAttempt": 2,
            "retryInMs": 524.5,
            "error": {"status": 529, "formatted": "529 overloaded"},
        },
        {"type": "system", "subtype": "compact_boundary"},
    )
    assert isinstance(retried, ModelRetried)
    assert (retried.attempt, retried.status, retried.wait_s) == (2, 529, 0.5245)
    assert isinstance(compacted, ConversationCompacted)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "from-the-future", "x": {"y": [1, None]}},
        {"type": "attachment", "attachment": {"type": "new"}},
        {"type": 7},
        {},
        {"type": "user"},
        {"type": "assistant"},
        {"type": "assistant", "message": "no object"},
        {
            "type": "assistant",
            "message": {"id": 1, "model": [], "content": [1, {}], "usage": {"input_tokens": "x"}},
        },
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": {}, "content": 7}]}},
        {"type": "user", "message": {"content": None}},
        {"type": "system", "subtype": "api_error", "retryInMs": -1, "error": []},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": 3, "input": "text"}]}},
    ],
    ids=str,
)
def test_unknown_and_wrong_records_are_kept(record: dict[str, Any]) -> None:
    """A record that is not as expected gives an event all the same, which can be written."""
    events = _events(record)
    assert events
    for event in events:
        msgspec.json.encode(event)
        if isinstance(event, TranscriptNoted):
            assert event.record == record


def test_a_side_chain_is_its_agents(said: Callable[..., dict[str, Any]]) -> None:
    """Records of a sub-agent say whose they are."""
    (event,) = _events(said(isSidechain=True, agentId="a1"))
    assert isinstance(event.origin, Origin)
    assert event.origin.agent == "a1"
