"""The session document."""

import json

from ringfence.events import JobCreated, MessageSent, ModelReplied, ToolCalled, ToolReturned, Usage
from ringfence.journal import export, write_session

from .conftest import MakeRun

_RESULT = {"stdout": "ok\n", "stderr": "", "exit_code": 0, "timed_out": False}


def _reply(text: str) -> ModelReplied:
    return ModelReplied(
        model="model-1",
        message_id="m",
        content=[{"type": "text", "text": text}],
        stop_reason="tool_use",
        usage=Usage(),
        cost_usd=None,
        duration_ms=1.0,
        request_digest="",
    )


def test_the_file_holds_every_message_and_call_in_order(make_run: MakeRun) -> None:
    """The file beside the journal has messages, calls with all that belongs to them, and the outcome."""
    directory = make_run()
    write_session(directory, export(directory).encode())
    path = directory / f"{directory.name}.json"
    document = json.loads(path.read_bytes())
    assert path.stat().st_mode & 0o777 == 0o600
    assert (document["session_id"], document["message_count"]) == ("session", 2)
    assert document["started_at"] < document["ended_at"]
    message, call = document["messages"]
    assert (message["role"], message["content"]) == ("user", "fix the test")
    assert (call["type"], call["tool"], call["parameters"]) == ("tool_call", "shell", {"command": "ls"})
    assert (call["reasoning"], call["result"], call["duration_ms"]) == ("to see", "a\nb", 1.5)
    assert document["outcome"]["state"] == "succeeded"


def test_results_stand_at_their_calls(make_run: MakeRun) -> None:
    """Calls keep their order whichever returns first; a message of mere results is not repeated."""
    calls = [ToolCalled(call_id=name, tool="shell", arguments={}) for name in "ab"]
    returns = [
        ToolReturned(call_id=name, tool="shell", is_error=False, content=f"of {name}", duration_ms=1.0)
        for name in "ba"
    ]
    handed = MessageSent(content=[{"type": "tool_result", "tool_use_id": "a", "content": "of a"}])
    events = [MessageSent(content="go"), _reply("looking"), *calls, *returns, handed, _reply("done")]
    messages = json.loads(export(make_run(events=events)).encode())["messages"]
    assert [message.get("role") or message["result"] for message in messages] == [
        "user",
        "assistant",
        "of a",
        "of b",
        "assistant",
    ]


def test_a_shells_result_is_an_object(make_run: MakeRun) -> None:
    """The structured result of a shell is kept structured."""
    events = [
        ToolCalled(call_id="1", tool="shell", arguments={}),
        ToolReturned(call_id="1", tool="shell", is_error=False, content=json.dumps(_RESULT), duration_ms=1.0),
    ]
    assert export(make_run(events=events)).messages[0].result == _RESULT  # type: ignore[union-attr]  # a call


def test_an_open_journal_gives_a_session_too(make_run: MakeRun) -> None:
    """Of a run that goes on, or was killed, the session ends where the journal does."""
    created = JobCreated(
        job_id="j",
        session_id="s",
        prompt="p",
        model="m",
        runtime="api",
        toolset="t",
        workspace="/",
        version="0",
    )
    call = ToolCalled(call_id="1", tool="shell", arguments={})
    document = export(make_run(seal=False, events=[created, call]))
    assert (document.ended_at, document.outcome, document.message_count) == (None, None, 1)
    assert json.loads(document.encode())["messages"][0]["result"] is None
