"""What claude prints becomes events: tried on what the real one printed."""

import json

from ringfence.events import (
    ModelReplied,
    ModelRetried,
    TextStreamed,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    Usage,
)
from ringfence.runtime.agent_cli.exit_status import Ending, Exit, classify_exit
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.transcript.record import LineSplitter, parse

from .streaming import captured, of, read


def test_a_call_is_told_before_it_returns() -> None:
    """With the line that it comes in, and all that was thought and said before it in one reply."""
    output, splitter = ClaudeCli().output(), LineSplitter()
    for data in captured("claude", "tool"):
        (line,) = splitter.feed(data + b"\n")
        events = output.take(line, parse(line))
        if of(events, ToolCalled):
            break
    (replied,) = of(events, ModelReplied)
    assert [block["type"] for block in replied.content] == ["thinking", "text", "tool_use"]


def test_calls_and_what_they_gave_are_told() -> None:
    """Each with its tool, whether it failed, and where it stands in the output."""
    events = read(ClaudeCli().output(), captured("claude", "tool"))
    called, returned = of(events, ToolCalled), of(events, ToolReturned)
    assert [call.arguments["command"] for call in called] == ["cat note.txt", "exit 3"]
    assert [(back.tool, back.is_error, back.call_id) for back in returned] == [
        ("Bash", False, called[0].call_id),
        ("Bash", True, called[1].call_id),
    ]
    assert {event.origin.file for event in events if event.origin} == {"claude:stdout"}


def test_pieces_of_a_reply_have_its_id() -> None:
    """Two calls of one reply are two pieces of it, so that turns can be counted."""
    replies = of(read(ClaudeCli().output(), captured("claude", "tool")), ModelReplied)
    assert len(replies) > len({reply.message_id for reply in replies}) == 2


def test_nothing_is_said_of_usage() -> None:
    """The stream's counts are those at the beginning of a reply; the gateway knows better."""
    replies = of(read(ClaudeCli().output(), captured("claude", "tool")), ModelReplied)
    assert {reply.usage.total for reply in replies} == {Usage().total}


def test_a_sub_agents_events_name_it() -> None:
    """What it says, calls and gets is its own, and its words are not the answer."""
    output = ClaudeCli().output()
    events = read(output, captured("claude", "sub-agent"))
    by_sub = [event for event in events if event.origin and event.origin.agent]
    assert [call.arguments for call in of(by_sub, ToolCalled)] == [{"command": "echo in-sub"}]
    assert "I am the sub." in str([reply.content for reply in of(by_sub, ModelReplied)])
    assert [call.tool for call in of(events, ToolCalled) if not call.origin.agent] == ["Agent"]
    assert output.report.final_text == "done"


def test_an_mcp_tools_result_is_its_text() -> None:
    """Under the tool's whole name."""
    (returned,) = of(read(ClaudeCli().output(), captured("claude", "mcp")), ToolReturned)
    assert (returned.tool, returned.content[:5]) == ("mcp__tiny__add", "sum 5")


def test_a_server_that_did_not_start_is_told_to_people() -> None:
    """Claude goes on without it, and only its first message says so."""
    notes = of(read(ClaudeCli().output(), captured("claude", "mcp-failed")), TranscriptNoted)
    assert notes[0].text == "MCP servers that did not start: tiny"


def test_a_plugin_that_did_not_load_is_told_to_people() -> None:
    """In claude's words; it goes on without it, too."""
    error = {"plugin": "inline[0]", "message": "Failed to load plugin: corrupt manifest"}
    first = {"type": "system", "subtype": "init", "plugin_errors": [error]}
    (note,) = of(read(ClaudeCli().output(), [json.dumps(first).encode()]), TranscriptNoted)
    assert note.text == error["message"]


def test_a_denial_is_told_to_people() -> None:
    """With the tool's name."""
    notes = of(read(ClaudeCli().output(), captured("claude", "denied")), TranscriptNoted)
    said = next(note.text for note in notes if note.kind == "system.permission_denied")
    assert said.startswith("Bash was not permitted: ")


def test_what_was_given_by_the_schema_is_kept() -> None:
    """As it is, beside the answer's text."""
    output = ClaudeCli().output()
    read(output, captured("claude", "schema"))
    assert output.report.structured_output == {"a": 5}


def test_a_retry_is_told() -> None:
    """With its status and how long it waits."""
    (retried,) = of(read(ClaudeCli().output(), captured("claude", "retried")), ModelRetried)
    assert (retried.attempt, retried.status, retried.reason) == (1, 529, "overloaded")
    assert 0 < retried.wait_s < 60


def test_an_error_of_the_api_is_no_reply() -> None:
    """It is a note, and the result's words are told to people."""
    output = ClaudeCli().output()
    events = read(output, captured("claude", "api-error"))
    assert of(events, ModelReplied) == []
    assert [note.text for note in of(events, TranscriptNoted) if note.text] == [
        "API Error: 400 no such thing"
    ] * 2
    assert classify_exit(output.report, Exit(1)).ending is Ending.REQUEST


def test_pieces_of_text_are_for_a_live_view() -> None:
    """They are events that no journal keeps."""
    streamed = of(read(ClaudeCli().output(), captured("claude", "partial")), TextStreamed)
    assert "".join(event.text for event in streamed) == "well donedone"
    assert not any(event.journaled for event in streamed)


def test_the_session_is_known_from_the_first_line() -> None:
    """Before anything else happens, so that it can be written down."""
    output = ClaudeCli().output()
    lines = captured("claude", "tool")
    read(output, lines[:1])
    assert output.report.session_id == json.loads(lines[0])["session_id"]


def test_a_session_that_could_be_a_path_is_none() -> None:
    """The name of a session comes from inside, and becomes the name of a directory."""
    for name in ("../../x", "a/b", "", ".", "x" * 101, 5, None, ["x"]):
        output = ClaudeCli().output()
        read(output, [json.dumps({"type": "system", "subtype": "init", "session_id": name}).encode()])
        assert output.report.session_id is None


def test_lines_that_are_no_json_are_noted() -> None:
    """A short one with its words, which mostly warn; a long one by its size and hash."""
    output = ClaudeCli().output()
    noted, damaged = read(output, [b"warning: \xff\x1b[2J", b"x" * 5000])
    assert isinstance(noted, TranscriptNoted)
    assert (noted.kind, noted.text) == ("no_json", "warning: \ufffd\x1b[2J")
    assert isinstance(damaged, TranscriptDamaged)
    assert damaged.size_bytes == 5000
