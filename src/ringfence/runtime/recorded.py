"""A model that answers from a record, and says where the conversation goes another way."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ringfence.errors import Diverged, RingfenceError
from ringfence.events import ConversationCompacted, Event, ModelReplied, TextStreamed, ThinkingStreamed
from ringfence.frozen import frozen
from ringfence.model.base import ContextExceeded, Emit, JSONObject, Model, ModelReply, ModelRequest
from ringfence.runtime.api import REQUEST_TOO_LONG
from ringfence.runtime.conversation import Conversation
from ringfence.runtime.differing import conversation_difference
from ringfence.runtime.volatile import masked


class RecordOver(RingfenceError):
    """The record has no further reply: what was recorded ended here, by itself or because it was stopped.

    Args:
        served: How many requests were answered.
    """

    def __init__(self, served: int) -> None:
        self.served = served
        super().__init__(f"the record ends after {served} requests, and here is one more")


@frozen
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
        difference = conversation_difference(recorded, now, str)
        if difference is None:
            return
        real = difference if self._is_exact else conversation_difference(recorded, now, masked)
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
