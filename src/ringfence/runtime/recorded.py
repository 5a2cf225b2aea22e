"""A model that answers from a record, and says where the conversation goes another way."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ringfence.errors import Diverged
from ringfence.events import ConversationCompacted, Event, ModelReplied, TextStreamed, ThinkingStreamed
from ringfence.model.base import ContextExceeded, Emit, JSONObject, Model, ModelReply, ModelRequest
from ringfence.runtime.api import REQUEST_TOO_LONG
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.volatile import masked

_SHOWN_CHARS = 120


@dataclass(frozen=True)
class _Step:
    """One request of the recorded run: what was asked, and what came (None: it was refused as too long)."""

    messages: tuple[JSONObject, ...]
    reply: ModelReplied | None


class RecordedModel(Model):
    """Serves the replies of a recorded run, in order, to the same conversation held again.

    Args:
        events: Of the run, in order; blobs resolved.
        conversation: What the run went on with, if it continued another.
        is_exact: Also a difference in durations, times, addresses and temporary names is a divergence.
            Otherwise such differences are kept in `tolerated`.
    """

    def __init__(
        self, events: Iterable[Event], *, conversation: Sequence[JSONObject] = (), is_exact: bool = False
    ) -> None:
        self._steps = _steps(events, conversation)
        self._is_exact = is_exact
        self._served = 0
        self.tolerated: list[str] = []
        """Differences that were passed over."""

    @property
    def remaining(self) -> int:
        """Recorded requests not made again yet; if above 0 after a run, it ended earlier than the record."""
        return len(self._steps) - self._served

    async def reply(self, request: ModelRequest, emit: Emit) -> ModelReply:
        """Answer as recorded.

        Raises:
            Diverged: The request is another one than recorded, or the record has no further reply.
            ContextExceeded: As recorded.
        """
        turn = self._served + 1
        if not self.remaining:
            raise Diverged(turn, f"the record ends after {self._served} requests, and here is one more")
        step = self._steps[self._served]
        self._served = turn
        self._compare(turn, step, request)
        if step.reply is None:
            raise ContextExceeded("the conversation is too long for the model, as recorded")
        for block in step.reply.content:
            await _stream(block, emit)
        return ModelReply(
            content=tuple(step.reply.content),
            stop_reason=step.reply.stop_reason,
            usage=step.reply.usage,
            model=step.reply.model,
            message_id=step.reply.message_id,
        )

    def _compare(self, turn: int, step: _Step, request: ModelRequest) -> None:
        if step.reply is not None and request.digest() == step.reply.request_digest:
            return
        difference = _difference(step.messages, request.messages)
        if difference is not None:
            if self._is_exact or _mask(step.messages) != _mask(request.messages):
                raise Diverged(turn, difference)
            self.tolerated.append(f"turn {turn}: {difference}")
        if (
            step.reply is None
            or replace(request, messages=step.messages).digest() == step.reply.request_digest
        ):
            return
        raise Diverged(
            turn,
            "the conversation is as recorded, but the model's name, the system prompt, the tools or the "
            "limits are not; replay with the version and the options of the record",
        )


def _steps(events: Iterable[Event], messages: Sequence[JSONObject]) -> list[_Step]:
    conversation = Conversation(messages)
    steps = []
    for event in events:
        if isinstance(event, ModelReplied):
            steps.append(_Step(conversation.messages, event))
        elif isinstance(event, ConversationCompacted) and event.reason == REQUEST_TOO_LONG:
            steps.append(_Step(conversation.messages, None))
        conversation.follow(event)
    return steps


async def _stream(block: JSONObject, emit: Emit) -> None:
    if block.get("type") == "text" and block.get("text"):
        await emit(TextStreamed(text=block["text"]))
    elif block.get("type") == "thinking" and block.get("thinking"):
        await emit(ThinkingStreamed(text=block["thinking"]))


def _mask(messages: Sequence[JSONObject]) -> str:
    return masked(msgspec.json.encode(messages, order="deterministic").decode())


def _difference(recorded: Sequence[JSONObject], now: Sequence[JSONObject]) -> str | None:
    """The first difference between two conversations, for people; None if there is none."""
    for index, (before, after) in enumerate(zip(recorded, now, strict=False)):
        if before != after:
            return _message_difference(index, before, after, _call_names(recorded))
    if len(recorded) != len(now):
        return f"the conversation has {len(now)} messages, recorded are {len(recorded)}"
    return None


def _call_names(messages: Sequence[JSONObject]) -> dict[str, str]:
    return {
        block["id"]: f"{block['name']} {_short(str(block['input'].get('command', block['input'])))}"
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use"
    }


def _message_difference(index: int, before: JSONObject, after: JSONObject, names: dict[str, str]) -> str:
    old, new = before["content"], after["content"]
    if before["role"] == after["role"] and isinstance(old, list) and isinstance(new, list):
        for old_block, new_block in zip(old, new, strict=False):
            if old_block != new_block:
                return _block_difference(index, old_block, new_block, names)
    return f"message {index + 1} ({before['role']}): {_lines_difference(_text(old), _text(new))}"


def _block_difference(index: int, before: JSONObject, after: JSONObject, names: dict[str, str]) -> str:
    call_id = before.get("tool_use_id")
    if before.get("type") != "tool_result" or call_id != after.get("tool_use_id"):
        return f"message {index + 1}: {_lines_difference(_text(before), _text(after))}"
    call = f"the result of call {call_id} ({names.get(str(call_id), 'unknown')})"
    if before.get("content") == after.get("content"):
        return f"{call} {'is an error now' if after.get('is_error') else 'is no error now'}"
    return f"{call} differs: {_lines_difference(_text(before.get('content')), _text(after.get('content')))}"


def _lines_difference(before: str, after: str) -> str:
    # Results of `shell` are JSON: its line ends are spelled there.
    old, new = before.replace("\\n", "\n").split("\n"), after.replace("\\n", "\n").split("\n")
    for number, (old_line, new_line) in enumerate(zip(old, new, strict=False), 1):
        if old_line != new_line:
            return f"line {number} was {_short(old_line)}, now is {_short(new_line)}"
    return f"it has {len(new)} lines, recorded are {len(old)}"


def _text(content: Any) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...")
