import copy
import json

from hypothesis import given
from hypothesis import strategies as st

from ringfence.events import JSONObject
from ringfence.model.base import ModelRequest
from ringfence.model.messages_api import request_body

MARK = {"type": "ephemeral"}


def request(*messages: JSONObject, **changes: object) -> ModelRequest:
    """A request with these messages."""
    given_values = {"model": "claude-sonnet-5-5", "system": "be good", "messages": messages}
    return ModelRequest(**{**given_values, **changes})  # type: ignore[arg-type]


def user(*blocks: JSONObject | str) -> JSONObject:
    """A user message."""
    return {"role": "user", "content": blocks[0] if isinstance(blocks[0], str) else list(blocks)}


def test_breakpoints_are_on_system_last_tool_and_last_two_user_messages():
    """What does not change from turn to turn is cached."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    body = request_body(request(user("one"), user("two"), user(result), tools=({"name": "a"}, {"name": "b"})))
    assert body["system"] == [{"type": "text", "text": "be good", "cache_control": MARK}]
    assert body["tools"] == [{"name": "a"}, {"name": "b", "cache_control": MARK}]
    first, second, third = (message["content"] for message in body["messages"])
    assert first == "one"
    assert second == [{"type": "text", "text": "two", "cache_control": MARK}]
    assert third == [{**result, "cache_control": MARK}]


def test_what_is_empty_is_not_sent():
    """The API refuses an empty system prompt and marks on empty text."""
    body = request_body(request(user({"type": "text", "text": ""}), system=""))
    assert set(body) == {"model", "max_tokens", "messages", "stream"}
    assert "cache_control" not in json.dumps(body)


blocks = st.sampled_from(
    [
        {"type": "text", "text": "t"},
        {"type": "tool_result", "tool_use_id": "t"},
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {}},
    ]
)
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant"]),
        "content": st.text() | st.lists(blocks, max_size=3),
    }
)


@given(st.lists(messages, max_size=6), st.integers(0, 3))
def test_the_request_is_never_changed_and_breakpoints_are_at_most_four(turns: list[JSONObject], tools: int):
    """The conversation is the caller's; the API takes four marks."""
    asked = request(*turns, tools=tuple({"name": str(number)} for number in range(tools)))
    before = copy.deepcopy(asked)
    body = request_body(asked)
    assert asked == before
    assert json.dumps(body).count('"cache_control"') <= 4
