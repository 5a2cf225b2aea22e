"""A model that answers from a record, and says where the conversation goes another way."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ringfence.errors import Diverged, RingfenceError
from ringfence.events import ConversationCompacted, Event, ModelReplied, TextStreamed, ThinkingStreamed
from ringfence.model.base import ContextExceeded, Emit, JSONObject, Model, ModelReply, ModelRequest
from ringfence.runtime.api import REQUEST_TOO_LONG
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.volatile import masked

_SHOWN_CHARS = 120
_Shown = Callable[[str], str]
"""What of a text counts in a comparison."""


class RecordOver(RingfenceError):
    """The record has no further reply: what was recorded ended here, by itself or because it was stopped.

    Args:
        served: How many requests were answered.
    """

    def __init__(self, served: int) -> None:
        self.served = served
        super().__init__(f"the record ends after {served} requests, and here is one more")


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
        self._steps, self._end = _steps(events, conversation)
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
            Diverged: The request is another one than recorded.
            RecordOver: The record has no further reply, and as far as it goes the request is the same.
            ContextExceeded: As recorded.
        """
        turn = self._served + 1
        if not self.remaining:
            self._tolerate(turn, self._end, request.messages[: len(self._end)])
            raise RecordOver(self._served)
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
        self._tolerate(turn, step.messages, request.messages)
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

    def _tolerate(self, turn: int, recorded: Sequence[JSONObject], now: Sequence[JSONObject]) -> None:
        """Note a difference that is passed over; raise one that is not."""
        difference = _difference(recorded, now, str)
        if difference is None:
            return
        real = difference if self._is_exact else _difference(recorded, now, masked)
        if real is not None:
            raise Diverged(turn, real)
        self.tolerated.append(f"turn {turn}: {difference}")


def _steps(
    events: Iterable[Event], messages: Sequence[JSONObject]
) -> tuple[list[_Step], tuple[JSONObject, ...]]:
    """The requests, and the conversation as it stood when the record ended."""
    conversation = Conversation(messages)
    steps = []
    for event in events:
        if isinstance(event, ModelReplied):
            steps.append(_Step(conversation.messages, event))
        elif isinstance(event, ConversationCompacted) and event.reason == REQUEST_TOO_LONG:
            steps.append(_Step(conversation.messages, None))
        conversation.follow(event)
    return steps, conversation.messages


async def _stream(block: JSONObject, emit: Emit) -> None:
    if block.get("type") == "text" and block.get("text"):
        await emit(TextStreamed(text=block["text"]))
    elif block.get("type") == "thinking" and block.get("thinking"):
        await emit(ThinkingStreamed(text=block["thinking"]))


def _difference(recorded: Sequence[JSONObject], now: Sequence[JSONObject], shown: _Shown) -> str | None:
    """The first difference between two conversations, for people; None if there is none."""
    for index, (before, after) in enumerate(zip(recorded, now, strict=False)):
        if _differ(before, after, shown):
            return _message_difference(index, before, after, _call_names(recorded), shown)
    if len(recorded) != len(now):
        return f"the conversation has {len(now)} messages, recorded are {len(recorded)}"
    return None


def _differ(before: Any, after: Any, shown: _Shown) -> bool:
    return bool(before != after and shown(_text(before)) != shown(_text(after)))


def _call_names(messages: Sequence[JSONObject]) -> dict[str, str]:
    return {
        block["id"]: f"{block['name']} {_short(str(block['input'].get('command', block['input'])))}"
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block.get("type") == "tool_use"
    }


def _message_difference(
    index: int, before: JSONObject, after: JSONObject, names: dict[str, str], shown: _Shown
) -> str:
    old, new = before["content"], after["content"]
    if before["role"] == after["role"] and isinstance(old, list) and isinstance(new, list):
        for old_block, new_block in zip(old, new, strict=False):
            if _differ(old_block, new_block, shown):
                return _block_difference(index, old_block, new_block, names, shown)
    return f"message {index + 1} ({before['role']}): {_lines_difference(_text(old), _text(new), shown)}"


def _block_difference(
    index: int, before: JSONObject, after: JSONObject, names: dict[str, str], shown: _Shown
) -> str:
    call_id = before.get("tool_use_id")
    if before.get("type") != "tool_result" or call_id != after.get("tool_use_id"):
        return f"message {index + 1}: {_lines_difference(_text(before), _text(after), shown)}"
    call = f"the result of call {call_id} ({names.get(str(call_id), 'unknown')})"
    old, new = before.get("content"), after.get("content")
    if not _differ(old, new, shown):
        return f"{call} {'is an error now' if after.get('is_error') else 'is no error now'}"
    return f"{call} differs: {_result_difference(old, new, shown)}"


def _result_difference(before: Any, after: Any, shown: _Shown) -> str:
    """By field, where results are JSON objects, as those of `shell`."""
    old, new = _fields(before), _fields(after)
    if old is not None and new is not None:
        for name in (*old, *(name for name in new if name not in old)):
            if name not in old or name not in new:
                return f"{name} is {'gone' if name in old else 'new'}"
            if _differ(old[name], new[name], shown):
                return f"{name}: {_lines_difference(_text(old[name]), _text(new[name]), shown)}"
    return _lines_difference(_text(before), _text(after), shown)


def _fields(content: Any) -> JSONObject | None:
    try:
        found = msgspec.json.decode(content) if isinstance(content, str) else None
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None
    return found if isinstance(found, dict) else None


def _lines_difference(before: str, after: str, shown: _Shown) -> str:
    # Elsewhere than in results, JSON within a text spells line ends.
    old, new = before.replace("\\n", "\n"), after.replace("\\n", "\n")
    # What is masked has as many lines as before.
    marks = map(operator.ne, shown(old).split("\n"), shown(new).split("\n"))
    old_lines, new_lines = old.split("\n"), new.split("\n")
    for number, is_other in enumerate(marks, 1):
        if is_other:
            was, now = _around(old_lines[number - 1], new_lines[number - 1])
            return f"line {number} was {was}, now is {now}"
    return f"it has {len(new_lines)} lines, recorded are {len(old_lines)}"


def _around(before: str, after: str) -> tuple[str, str]:
    """Two lines, short; where they are long, from shortly before they differ."""
    alike = next((n for n, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0)
    start = max(0, alike - _SHOWN_CHARS // 2) if max(len(before), len(after)) > _SHOWN_CHARS else 0
    return _short(before, start), _short(after, start)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return msgspec.json.encode(content, order="deterministic").decode()


def _short(text: str, start: int = 0) -> str:
    cut = text[start : start + _SHOWN_CHARS]
    return repr(f"{'...' if start else ''}{cut}{'...' if len(text) > start + _SHOWN_CHARS else ''}")
