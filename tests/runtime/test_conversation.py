from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringfence.events import MessageSent, ModelReplied, ToolReturned, Usage
from ringfence.runtime.conversation import CLEARED, Conversation, tool_result

CALL = {"type": "tool_use", "id": "c1", "name": "shell", "input": {}}


def replied(*content: dict[str, Any], stop: str) -> ModelReplied:
    """An event."""
    return ModelReplied(
        model="m",
        message_id="i",
        content=list(content),
        stop_reason=stop,
        usage=Usage(),
        cost_usd=None,
        duration_ms=0.0,
        request_digest="",
    )


def test_calls_without_a_result_are_answered() -> None:
    """With what the record knows: the run was killed before the results were sent."""
    other = {**CALL, "id": "c2"}
    events = [
        MessageSent(content="do it"),
        replied(CALL, other, stop="tool_use"),
        ToolReturned(call_id="c1", tool="shell", is_error=False, content="it was done", duration_ms=1.0),
    ]
    last = Conversation.from_events(events).messages[-1]
    assert last["content"][0] == tool_result("c1", "it was done", is_error=False)
    assert last["content"][1]["is_error"] is True
    assert last["content"][1]["content"].startswith("not run")


def test_a_prompt_after_unanswered_calls_joins_the_results() -> None:
    """The API takes one user message after calls, results first."""
    conversation = Conversation([{"role": "user", "content": "a"}, {"role": "assistant", "content": [CALL]}])
    conversation.add_message("go on")
    assert [block["type"] for block in conversation.messages[-1]["content"]] == ["tool_result", "text"]


def test_messages_once_given_out_do_not_change() -> None:
    """A request that is being compared or sent again stays what it was."""
    conversation = Conversation()
    conversation.add_message("a")
    conversation.add_reply([CALL], "tool_use")
    conversation.add_message([tool_result("c1", "long", is_error=False)])
    before = conversation.messages
    conversation.compact()
    assert before[-1]["content"][0]["content"] == "long"
    assert conversation.messages[-1]["content"][0]["content"] == CLEARED


STOPS = ["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"]
BLOCKS = st.lists(
    st.sampled_from([CALL, {"type": "text", "text": ""}, {"type": "text", "text": "x"}]), max_size=3
)


@given(st.lists(st.tuples(BLOCKS, st.sampled_from(STOPS), st.booleans()), max_size=20))
def test_whatever_happens_the_api_takes_the_messages(
    turns: list[tuple[list[dict[str, Any]], str, bool]],
) -> None:
    """Roles alternate, no message and no text is empty, calls are answered by the next message."""
    conversation = Conversation()
    conversation.add_message("start")
    for blocks, stop, compacts in turns:
        conversation.add_reply(blocks, stop)
        if stop == "tool_use":
            conversation.settle()
        if compacts:
            conversation.compact()
    messages = conversation.messages
    assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2) + [
        "user"
    ] * (len(messages) % 2)
    for message, following in zip(messages, [*messages[1:], None], strict=True):
        assert message["content"]
        assert {"type": "text", "text": ""} not in list(message["content"])
        calls = [
            block["id"]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_use"
        ]
        if calls:
            assert following is not None
            assert [block["tool_use_id"] for block in following["content"]][: len(calls)] == calls
