"""What codex prints becomes events: tried on what the real one printed."""

import json

import pytest

from ringfence.events import (
    MessageSent,
    ModelReplied,
    ModelRetried,
    ToolCalled,
    ToolReturned,
    TranscriptNoted,
)
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.transcript.record import LineSplitter, parse

from .streaming import captured, of, read


def test_a_call_is_told_before_it_returns() -> None:
    """With the line that begins it, and all that was thought and said before it in one reply."""
    output, splitter = CodexCli().output(), LineSplitter()
    for data in captured("codex", "tool"):
        (line,) = splitter.feed(data + b"\n")
        events = output.take(line, parse(line))
        if of(events, ToolCalled):
            break
    assert json.loads(data)["type"] == "item.started"
    (replied,) = of(events, ModelReplied)
    assert [block["type"] for block in replied.content] == ["thinking", "text", "tool_use"]


def test_commands_and_what_they_gave_are_told() -> None:
    """A command that ends with another code than 0 is an error, as it is to the model."""
    events = read(CodexCli().output(), captured("codex", "tool"))
    returned = of(events, ToolReturned)
    assert [(back.tool, back.is_error, back.content) for back in returned] == [
        ("command_execution", True, ""),
        ("command_execution", False, "one\n"),
    ]
    assert [call.call_id for call in of(events, ToolCalled)] == [back.call_id for back in returned]
    assert len(of(events, MessageSent)) == 2


def test_changes_of_files_are_told() -> None:
    """As a call with its changes."""
    events = read(CodexCli().output(), captured("codex", "patch"))
    (called,), (returned,) = of(events, ToolCalled), of(events, ToolReturned)
    assert called.arguments == {"changes": [{"path": "/home/dev/project/new.txt", "kind": "add"}]}
    assert (returned.tool, returned.is_error) == ("file_change", False)


def test_an_mcp_tools_result_is_its_text() -> None:
    """Under the tool's whole name, as claude calls it."""
    (returned,) = of(read(CodexCli().output(), captured("codex", "mcp")), ToolReturned)
    assert (returned.tool, returned.content[:5]) == ("mcp__tiny__add", "sum 5")


@pytest.mark.parametrize("ends", [None, -1], ids=["turn ends", "output ends"])
def test_a_command_that_goes_on_returns_at_the_end(ends: int | None) -> None:
    """Codex says no more of it; each call in the record has an end all the same, once."""
    output = CodexCli().output()
    events = read(output, captured("codex", "long")[:ends])
    (called,), (returned,) = of(events, ToolCalled), of(events, ToolReturned)
    assert (returned.call_id, returned.tool) == (called.call_id, called.tool)
    assert "did not report its end" in returned.content
    assert output.report.final_text == "done"


def test_an_answer_that_is_json_is_the_structured_output() -> None:
    """Codex gives it as text; one that is none has no value."""
    output, other = CodexCli().output(), CodexCli().output()
    read(output, captured("codex", "schema"))
    read(other, captured("codex", "tool"))
    assert (output.report.structured_output, other.report.structured_output) == ({"a": 5}, None)


def test_a_retry_is_told() -> None:
    """With its number and the status that it is for; it is no failure."""
    message = "Reconnecting... 1/2 (unexpected status 503 Service Unavailable: x, url: http://127.0.0.1:1/v1)"
    output = CodexCli().output()
    (retried,) = read(output, [json.dumps({"type": "error", "message": message}).encode()])
    assert isinstance(retried, ModelRetried)
    assert (retried.attempt, retried.status, retried.reason) == (1, 503, message)
    assert output.report.final is None


def test_a_failure_is_told_to_people() -> None:
    """By its message; and it is what ended it."""
    output = CodexCli().output()
    notes = of(read(output, captured("codex", "api-error")), TranscriptNoted)
    assert [note.kind for note in notes][-2:] == ["error", "turn.failed"]
    assert "no such thing" in notes[-1].text
    assert output.report.final is not None


def test_the_session_is_known_from_the_first_line() -> None:
    """Codex makes the id itself."""
    output = CodexCli().output()
    lines = captured("codex", "tool")
    read(output, lines[:1])
    assert output.report.session_id == json.loads(lines[0])["thread_id"]


def test_a_session_that_could_be_a_path_is_none() -> None:
    """The name of a session comes from inside, and becomes the name of a directory."""
    for name in ("../../x", "a/b", "", ".", "x" * 101, 5, None, ["x"]):
        output = CodexCli().output()
        read(output, [json.dumps({"type": "thread.started", "thread_id": name}).encode()])
        assert output.report.session_id is None


def test_an_answer_that_no_reader_could_read_back_is_no_structure() -> None:
    """As deep as an agent likes: its run's record would be unreadable for whoever stands deeper than its writer."""
    for depth, is_kept in ((50, True), (101, False), (900, False), (100_000, False)):
        output = CodexCli().output()
        answer = {"id": "1", "type": "agent_message", "text": "[" * depth + "]" * depth}
        ended = [{"type": "item.completed", "item": answer}, {"type": "turn.completed"}]
        read(output, [json.dumps(line).encode() for line in ended])
        assert (output.report.structured_output is not None) is is_kept
