"""What passes between a client and the SDK is told before it has an effect, and is bounded."""

import math
from typing import Any

import pytest

from ringfence.events import HookAnswered, PermissionDecided, ToolCalled, ToolReturned
from ringfence.runtime.claude_sdk.control import MAX_OPEN_REQUESTS

from .conftest import Inside, answer, request, tool_call, tool_result

pytestmark = pytest.mark.anyio


def asks(command: str, request_id: str = "r1") -> dict[str, Any]:
    """A client asks whether it may run a command."""
    asked = {"tool_name": "Bash", "input": {"command": command}, "tool_use_id": "t1"}
    return request(request_id, subtype="can_use_tool", **asked)


async def test_a_tools_call_is_told_before_the_sdk_hears_of_it(inside: Inside):
    """When the function runs, the call is in the record already."""
    await inside.exchange.take(tool_call(a=2, b=3))
    assert inside.told == [ToolCalled(call_id="toolu_1", tool="mcp__host__add", arguments={"a": 2, "b": 3})]
    assert await anext(inside.exchange.messages()) == tool_call(a=2, b=3)


async def test_a_tools_result_is_told_before_the_client_has_it(inside: Inside):
    """Law of the record: written before told."""
    await inside.exchange.take(tool_call())
    await inside.exchange.write(tool_result("5"))
    await inside.settle()
    _called, returned, sent, closed = inside.happened
    assert isinstance(returned, ToolReturned)
    assert (returned.call_id, returned.content, returned.is_error) == ("toolu_1", "5", False)
    assert (sent, closed) == (tool_result("5"), "closed")


async def test_a_permission_is_told_with_its_reason(inside: Inside):
    """What was asked, what was decided, why."""
    await inside.exchange.take(asks("rm -rf /"))
    await inside.exchange.write(answer(behavior="deny", message="not that"))
    await inside.settle()
    decided = PermissionDecided(
        call_id="t1", tool="Bash", allowed=False, reason="not that", arguments={"command": "rm -rf /"}
    )
    assert inside.told == [decided]


async def test_changed_arguments_are_told(inside: Inside):
    """A host that lets a call through in another form has decided that too."""
    await inside.exchange.take(asks("ls"))
    await inside.exchange.write(answer(behavior="allow", updatedInput={"command": "ls -l"}))
    await inside.settle()
    [decided] = inside.told
    assert isinstance(decided, PermissionDecided)
    assert (decided.allowed, decided.changed_arguments) == (True, {"command": "ls -l"})


async def test_a_callback_that_fails_permits_nothing(inside: Inside):
    """The SDK answers an error, and the record says so."""
    await inside.exchange.take(asks("ls"))
    failed = {"subtype": "error", "request_id": "r1", "error": "KeyError: 'x'"}
    await inside.exchange.write({"type": "control_response", "response": failed})
    await inside.settle()
    [decided] = inside.told
    assert isinstance(decided, PermissionDecided)
    assert (decided.allowed, decided.reason) == (False, "KeyError: 'x'")


async def test_a_hooks_answer_is_told_by_its_occasion(inside: Inside):
    """Which callback is for what is known from the SDK's greeting, not from inside."""
    hooks = {"PreToolUse": [{"matcher": "Bash", "hookCallbackIds": ["hook_0"]}]}
    greeting = {"subtype": "initialize", "hooks": hooks}
    await inside.exchange.write({"type": "control_request", "request_id": "g1", "request": greeting})
    about = {"hook_event_name": "Stop", "tool_name": "Bash"}
    await inside.exchange.take(
        request(subtype="hook_callback", callback_id="hook_0", input=about, tool_use_id="t1")
    )
    await inside.exchange.write(answer(decision="block"))
    await inside.settle()
    [told] = inside.told
    assert isinstance(told, HookAnswered)
    assert (told.hook, told.tool, told.call_id, told.answer) == (
        "PreToolUse",
        "Bash",
        "t1",
        {"decision": "block"},
    )


async def test_no_more_is_answered_at_once_than_is_bounded(inside: Inside):
    """A further request is refused, and a free place is taken again."""
    for number in range(MAX_OPEN_REQUESTS + 1):
        await inside.exchange.take(tool_call(request_id=f"r{number}"))
    await inside.exchange.write(tool_result("5", request_id="r0"))
    await inside.settle()
    refused, answered = inside.sent
    assert (refused["response"]["request_id"], refused["response"]["subtype"]) == (
        f"r{MAX_OPEN_REQUESTS}",
        "error",
    )
    assert answered["response"]["request_id"] == "r0"
    assert len([event for event in inside.told if isinstance(event, ToolCalled)]) == MAX_OPEN_REQUESTS


async def test_a_second_request_of_the_same_name_does_not_take_the_place_of_the_first(inside: Inside):
    """The first is answered and told as it was asked."""
    await inside.exchange.take(tool_call(a=1))
    await inside.exchange.take(tool_call("remove", a=2))
    await inside.exchange.write(tool_result("5"))
    await inside.settle()
    assert [type(event) for event in inside.told] == [ToolCalled, ToolReturned]
    assert inside.sent[-1] == tool_result("5")


async def test_a_malformed_request_is_refused(inside: Inside):
    """So that the client does not wait; the SDK hears nothing of it."""
    await inside.exchange.take(request("r9", subtype="reboot"))
    await inside.settle()
    [refused] = inside.sent
    assert (refused["response"]["request_id"], refused["response"]["subtype"]) == ("r9", "error")
    assert inside.told == []


async def test_half_a_character_in_a_request_is_refused(inside: Inside):
    """No record could hold it."""
    await inside.exchange.take(tool_call(text="\ud83d"))
    await inside.settle()
    assert inside.sent[0]["response"]["subtype"] == "error"
    assert inside.told == []


async def test_a_functions_odd_result_can_be_recorded_and_sent(inside: Inside):
    """Half a character, and a number that is none, are no JSON that every reader takes."""
    await inside.exchange.take(tool_call())
    await inside.exchange.write(tool_result("a\ud83db"))
    await inside.exchange.take(asks("ls", "r2"))
    await inside.exchange.write(answer("r2", behavior="allow", updatedInput={"n": math.nan}))
    await inside.settle()
    contents = [event.content for event in inside.told if isinstance(event, ToolReturned)]
    assert contents == ["a\ufffdb"]
    assert inside.sent == [tool_result("a\ufffdb"), answer("r2", behavior="allow", updatedInput={"n": None})]


async def test_a_call_that_the_client_gives_up_is_told_as_over(inside: Inside):
    """What its function gives afterwards is neither told nor sent."""
    await inside.exchange.take(tool_call())
    await inside.exchange.take({"type": "control_cancel_request", "request_id": "r1"})
    await inside.exchange.write(tool_result("late"))
    await inside.settle()
    assert [getattr(event, "is_error", None) for event in inside.told] == [None, True]
    assert inside.sent == []


async def test_a_client_that_ends_leaves_no_call_open(inside: Inside):
    """Each call that was told has its end in the record."""
    await inside.exchange.take(tool_call())
    await inside.exchange.finish()
    assert [type(event) for event in inside.told] == [ToolCalled, ToolReturned]


async def test_the_sdk_does_not_wait_for_a_client_that_has_ended(inside: Inside):
    """Its open questions are answered by an error, and further ones fail."""
    question = {"type": "control_request", "request_id": "g1", "request": {"subtype": "initialize"}}
    await inside.exchange.write(question)
    await inside.exchange.finish()
    told = [message async for message in inside.exchange.messages()]
    assert [message["response"]["request_id"] for message in told] == ["g1"]
    with pytest.raises(ConnectionError):
        await inside.exchange.write(question)


async def test_it_is_told_when_a_client_waits(inside: Inside):
    """A client that waits for an answer is not silent."""
    await inside.exchange.take(tool_call())
    await inside.exchange.write(tool_result("5"))
    await inside.settle()
    assert inside.busy == [True, False]


async def test_an_answer_to_nothing_is_dropped(inside: Inside):
    """Only what was asked can be answered, and once."""
    await inside.exchange.take(answer("g1"))
    await inside.exchange.write(
        {"type": "control_request", "request_id": "g1", "request": {"subtype": "initialize"}}
    )
    await inside.exchange.take(answer("g1", one=1))
    await inside.exchange.take(answer("g1", two=2))
    await inside.exchange.finish()
    told = [message["response"]["response"] async for message in inside.exchange.messages()]
    assert told == [{"one": 1}]
