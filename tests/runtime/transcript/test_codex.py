"""Records of the codex CLI become events."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.runtime.transcript.conftest import translated

from ringfence.events import (
    Event,
    ModelReplied,
    ToolCalled,
    ToolReturned,
    TranscriptNoted,
    Usage,
)
from ringfence.runtime.codex.transcript import RolloutTranslator
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.transcript.session import file_events


def _events(*values: dict[str, Any]) -> list[Event]:
    return translated(RolloutTranslator("r.jsonl"), *values)


def _item(**payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05.000Z", "type": "response_item", "payload": payload}


def test_a_rollout_reads_as_one_of_ours(codex: Path) -> None:
    """Prompt, replies, calls and results of a real rollout come in the order and shape of our own events."""
    events = list(file_events(codex, codex, "codex", None))
    names = [event.name for event in events if not isinstance(event, TranscriptNoted)]
    assert names == [
        *(["message.sent"] * 2),
        "model.replied",
        "tool.called",
        "tool.called",
        *(["tool.returned", "message.sent"] * 2),
        "model.replied",
        "tool.called",
        "tool.returned",
        "message.sent",
        "model.replied",
    ]
    assert [(call.tool, *call.arguments) for call in events if isinstance(call, ToolCalled)] == [
        ("exec_command", "cmd"),
        ("exec_command", "cmd"),
        ("apply_patch", "input"),
    ]


def test_what_a_reply_used_is_counted_once(codex: Path) -> None:
    """The replies' usages add up to what the rollout says of the thread; cached input is told apart."""
    events = file_events(codex, codex, "codex", None)
    total = sum((event.usage for event in events if isinstance(event, ModelReplied)), Usage())
    assert total == Usage(input_tokens=180, cache_read_input_tokens=120, output_tokens=60)


def test_usage_that_comes_late_is_not_lost() -> None:
    """A record of usage behind the reply it belongs to counts with the next one."""
    usage = {"type": "token_usage_record", "payload": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    output = _item(type="function_call_output", call_id="c", output="x")
    events = _events(_item(**text), output, usage, _item(**text))
    assert sum(event.usage.total for event in events if isinstance(event, ModelReplied)) == 8


def test_the_conversation_can_be_held_again(codex: Path) -> None:
    """The events fold to a conversation with alternating roles."""
    messages = Conversation.from_events(file_events(codex, codex, "codex", None)).messages
    assert [message["role"] for message in messages] == ["user", "assistant"] * 3


def test_a_stopped_turn_is_said() -> None:
    """It is a note with words for people."""
    (note,) = _events({"type": "event_msg", "payload": {"type": "turn_aborted", "reason": "interrupted"}})
    assert isinstance(note, TranscriptNoted)
    assert note.text == "the turn was stopped: interrupted"


def test_a_failed_call_of_an_older_version() -> None:
    """An output that is an object says by itself whether it failed."""
    output = {"content": [{"type": "text", "text": "no"}], "success": False}
    returned, _ = _events(_item(type="function_call_output", call_id="c", output=output))
    assert isinstance(returned, ToolReturned)
    assert (returned.content, returned.is_error) == ("no", True)


@pytest.mark.parametrize(
    "record",
    [
        {"type": "from_the_future", "payload": {"type": "x"}},
        {"type": "response_item", "payload": {"type": "new_item", "x": 1}},
        {"type": "response_item", "payload": None},
        {"type": None, "payload": {}},
        {},
        _item(type="message", role="assistant", content=[{"type": "output_image", "data": "x"}, 7]),
        _item(type="function_call", name=1, arguments="{", call_id=None),
        _item(type="function_call", name="f", arguments="[" * 5000, call_id="c"),
        _item(type="function_call_output", call_id=[], output={"content": 7}),
        _item(type="local_shell_call", action={"command": ["ls"]}, call_id="c"),
        _item(type="reasoning", summary="text", content=[{}]),
        {"type": "token_usage_record", "payload": {"usage": {"input_tokens": -5}}},
        {"type": "compacted", "payload": {"message": "short"}},
    ],
    ids=lambda record: str(record)[:60],
)
def test_unknown_and_wrong_records_are_kept(record: dict[str, Any]) -> None:
    """A record that is not as expected gives an event all the same, which can be written."""
    events = _events(record)
    assert events
    for event in events:
        msgspec.json.encode(event)
