"""Tools of the provider that are offered where the conversation is, rather than in `tools`."""

import json
from typing import Any

import pytest

from ringfence.egress.gateway.policy import ModelPolicy, check_pointers, clean
from ringfence.egress.gateway.routes import Rejected

SEARCH = {"type": "web_search"}
OWN = {"type": "function", "name": "read", "parameters": {}}
NOTHING = ModelPolicy()
HELLO = {"type": "message", "role": "user", "content": "hi"}


def asked(*items: Any) -> dict[str, Any]:
    """A request to the Responses API."""
    return {"model": "m", "input": list(items)}


def test_tools_in_an_item_are_taken_out_as_elsewhere():
    """Codex offers some models their tools so; what the agent can do without is taken out, and told."""
    body = asked({"type": "additional_tools", "role": "developer", "tools": [SEARCH, OWN]}, HELLO)
    assert clean("responses", body, NOTHING) == ("tool web_search",)
    assert body["input"][0]["tools"] == [OWN]


def test_an_item_that_offers_nothing_else_goes_too():
    """An API may refuse an empty offer."""
    body = asked({"type": "additional_tools", "role": "developer", "tools": [SEARCH]}, HELLO)
    clean("responses", body, NOTHING)
    assert body["input"] == [HELLO]


def test_a_namespace_hides_nothing():
    """It goes with all that is in it."""
    space = {"type": "namespace", "name": "n", "tools": [OWN, SEARCH]}
    body = asked({"type": "additional_tools", "tools": [space, OWN]})
    assert clean("responses", body, NOTHING) == ("tool namespace",)
    assert body["input"][0]["tools"] == [OWN]


def test_what_is_granted_stays():
    """In an item as in `tools`."""
    body = asked({"type": "additional_tools", "tools": [SEARCH]})
    assert clean("responses", body, ModelPolicy(grants=frozenset({"web_search"}))) == ()
    assert body["input"][0]["tools"] == [SEARCH]


def addition(tool: dict[str, Any]) -> dict[str, Any]:
    """A request to the Messages API that adds a tool in the middle."""
    block = {"type": "tool_addition", "tool": tool}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": [block]}],
    }


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "mcp_toolset", "mcp_server_name": "x"},
        {"type": "of_tomorrow"},
    ],
    ids=lambda tool: str(tool["type"]),
)
def test_a_tool_added_in_the_middle_is_refused(tool: dict[str, Any]):
    """Without it the message would mean something else."""
    body = addition(tool)
    with pytest.raises(Rejected, match="in a message is not granted"):
        check_pointers("messages", json.dumps(body, separators=(",", ":")).encode(), body, NOTHING)


def test_a_list_of_tools_in_a_message_is_seen_too():
    """Whatever the block is called."""
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "any", "tools": [SEARCH]}]}]}
    with pytest.raises(Rejected, match="in a message is not granted"):
        check_pointers("messages", json.dumps(body, separators=(",", ":")).encode(), body, NOTHING)


@pytest.mark.parametrize(
    "tool",
    [{"type": "tool_reference", "name": "Read"}, {"name": "Read", "input_schema": {"type": "object"}}],
    ids=["a reference", "the client's own"],
)
def test_a_tool_of_the_clients_may_be_added(tool: dict[str, Any]):
    """Claude does so when it has looked a tool up."""
    body = addition(tool)
    check_pointers("messages", json.dumps(body, separators=(",", ":")).encode(), body, NOTHING)
    assert body == addition(tool)


def test_namespaces_nested_without_end():
    """Namespaces within namespaces are removed rather than followed to any depth."""
    space: dict[str, Any] = dict(OWN)
    for _ in range(900):
        space = {"type": "namespace", "name": "n", "tools": [space]}
    body = {"model": "m", "tools": [space]}
    assert clean("responses", body, NOTHING) == ("tool namespace",)
