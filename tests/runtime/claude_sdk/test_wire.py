"""What of a client's lines reaches the SDK."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.runtime.claude_sdk.control import checked_message, error_response, is_control, request_id_of

from .conftest import request, tool_call

_NAMES = (
    "type",
    "request_id",
    "request",
    "response",
    "subtype",
    "input",
    "tool_name",
    "callback_id",
    "message",
)
_WORDS = ("control_request", "control_response", "can_use_tool", "hook_callback", "mcp_message", "r1")
_HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=6),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(_NAMES), _HOSTILE, max_size=6))
def test_what_is_let_through_has_the_fields_that_the_sdk_reads(value: dict[str, Any]) -> None:
    """Whatever a line holds: a message has a name, and its parts are of the kinds that are read."""
    made = checked_message(value)
    if made is None:
        return
    if made["type"] == "control_cancel_request":
        assert made["request_id"]
        return
    part = made["request" if made["type"] == "control_request" else "response"]
    assert isinstance(part["subtype"], str)
    assert all(isinstance(part[name], dict) for name in ("input", "message", "response") if name in part)
    assert all(isinstance(each, dict) for each in part.get("permission_suggestions", []))


def test_a_permission_comes_through_as_it_was_asked() -> None:
    """With what the callback is told of it, and nothing else."""
    asked = {
        "tool_name": "Bash",
        "input": {"command": "ls"},
        "tool_use_id": "t1",
        "title": "Run",
        "more": "?",
    }
    made = checked_message(request(subtype="can_use_tool", **asked))
    assert made is not None
    told = {name: value for name, value in made["request"].items() if value is not None}
    assert told == {
        "subtype": "can_use_tool",
        "tool_name": "Bash",
        "input": {"command": "ls"},
        "tool_use_id": "t1",
        "title": "Run",
        "permission_suggestions": [],
    }


def test_a_message_for_a_server_comes_through_as_it_is() -> None:
    """Servers read it themselves, and are made for any client."""
    assert checked_message(tool_call(a=1)) == tool_call(a=1)


@pytest.mark.parametrize(
    "line",
    [
        request(subtype="can_use_tool", tool_name="Bash", input="ls"),
        request(subtype="can_use_tool", input={}),
        request(subtype="mcp_message", server_name="host", message={"id": []}),
        request(subtype="mcp_message", server_name="host", message={"method": "ping", "id": {}}),
        request(subtype="mcp_message", message={"method": "ping"}),
        request(subtype="interrupt"),
        request("r" * 201, subtype="hook_callback", callback_id="hook_0"),
        {"type": "control_request", "request_id": "r1"},
        {"type": "control_response", "response": {"request_id": ["r1"]}},
        {"type": "control_cancel_request", "request_id": {}},
        {"type": ["control_request"]},
    ],
    ids=str,
)
def test_what_the_sdk_would_stumble_over_is_kept_from_it(line: dict[str, Any]) -> None:
    """A field of another kind than it expects would end its reading."""
    assert checked_message(line) is None


def test_only_the_control_messages_are_the_sdks() -> None:
    """The conversation is read once, by what reads it for the command line client, too."""
    lines = ("assistant", "user", "system", "result", ["control_request"], None)
    assert not any(is_control({"type": kind}) for kind in lines)
    assert is_control({"type": "control_request"})


def test_a_refusal_names_the_request() -> None:
    """So that the client does not wait for an answer."""
    asked = request("r7", subtype="unheard_of")
    assert error_response(request_id_of(asked), "no")["response"] == {
        "subtype": "error",
        "request_id": "r7",
        "error": "no",
    }
