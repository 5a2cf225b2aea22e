"""Builds the messages of a conversation with a model from a run's events.

The agent loop and a run that continues an earlier one build them by the same rules, so equal events give equal messages.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ringfence.events import ConversationCompacted, Event, JSONObject, MessageSent, ModelReplied, ToolReturned

CLEARED = "[cleared because the conversation was too long; call again if you need this result]"
_NOT_RUN = "not run: the run was stopped before this call"
_NOT_KEPT = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons of replies that are dropped: a cut reply is requested again, and a refusal may not be sent back."""


class Conversation:
    """Messages in the shape of the Messages API, with alternating roles. Messages that were returned never change.

    Args:
        messages: The earlier messages; tool calls at their end without a result get one that says they were not run.
    """

    def __init__(self, messages: Sequence[JSONObject] = ()) -> None:
        self._messages = list(messages)
        self._returned: dict[str, ToolReturned] = {}
        self.settle()

    @classmethod
    def from_events(cls, events: Iterable[Event], *, messages: Sequence[JSONObject] = ()) -> "Conversation":
        """Return the conversation of a run, ready to be continued.

        Args:
            events: The events of the run, in order.
            messages: The conversation that the run continued.
        """
        conversation = cls(messages)
        for event in events:
            conversation.follow(event)
        conversation.settle()
        return conversation

    @property
    def messages(self) -> tuple[JSONObject, ...]:
        """The messages so far."""
        return tuple(self._messages)

    def follow(self, event: Event) -> None:
        """Apply an event to the conversation; events about other things change nothing."""
        if isinstance(event, MessageSent):
            self.add_message(event.content)
        elif isinstance(event, ModelReplied):
            self.add_reply(event.content, event.stop_reason)
        elif isinstance(event, ConversationCompacted):
            self.compact()
        elif isinstance(event, ToolReturned):
            self._returned[event.call_id] = event

    def add_message(self, content: Any) -> None:
        """Add a message of the user or of tools: a text or a list of content blocks."""
        self._add("user", content)

    def add_reply(self, content: Sequence[JSONObject], stop_reason: str) -> None:
        """Add the part of a reply of the model that may be sent back.

        The API rejects empty texts and calls without results, and only the calls of a stop for `tool_use` get results.
        """
        if stop_reason in _NOT_KEPT:
            return
        kept = [block for block in content if _may_be_sent(block, stop_reason)]
        if kept:
            self._add("assistant", kept)

    def compact(self) -> int:
        """Clear the older half of the tool results, the last message's only at the end; return how many were cleared."""
        places = self._results(self._messages[:-1]) or self._results(self._messages)
        cleared = places[: (len(places) + 1) // 2]
        for index, position in cleared:
            message = self._messages[index]
            blocks = list(message["content"])
            blocks[position] = {**blocks[position], "content": CLEARED}
            self._messages[index] = {**message, "content": blocks}
        return len(cleared)

    def settle(self) -> None:
        """Add a result for each tool call without one: the recorded result, or that it was not run."""
        last = self._messages[-1] if self._messages else {"role": "user"}
        if last["role"] != "assistant" or not isinstance(last["content"], list):
            return
        calls = [block["id"] for block in last["content"] if block.get("type") == "tool_use"]
        if calls:
            self.add_message([self._late_result(call_id) for call_id in calls])

    def _late_result(self, call_id: str) -> JSONObject:
        event = self._returned.get(call_id)
        if event is None:
            return tool_result(call_id, _NOT_RUN, is_error=True)
        return tool_result(call_id, event.content, is_error=event.is_error)

    def _results(self, messages: Sequence[JSONObject]) -> list[tuple[int, int]]:
        return [
            (index, position)
            for index, message in enumerate(messages)
            if isinstance(message["content"], list)
            for position, block in enumerate(message["content"])
            if block.get("type") == "tool_result" and block.get("content") != CLEARED
        ]

    def _add(self, role: str, content: Any) -> None:
        last = self._messages[-1] if self._messages else None
        if last is None or last["role"] != role:
            self._messages.append({"role": role, "content": content})
        else:
            self._messages[-1] = {"role": role, "content": [*_blocks(last["content"]), *_blocks(content)]}


def tool_result(call_id: str, content: str, *, is_error: bool) -> JSONObject:
    """Return a tool's result in the shape of the Messages API."""
    block: JSONObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {**block, "is_error": True} if is_error else block


def text_of(content: Sequence[JSONObject]) -> str:
    """Return the text of a reply."""
    return "".join(str(block.get("text", "")) for block in content if block.get("type") == "text")


def _may_be_sent(block: JSONObject, stop_reason: str) -> bool:
    if block.get("type") == "text":
        return bool(block.get("text"))
    return block.get("type") != "tool_use" or stop_reason == "tool_use"


def _blocks(content: Any) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
