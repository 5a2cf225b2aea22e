"""Sends one scripted answer, whole or damaged as the script says."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringfence.frozen import frozen
from ringfence.model.scripted.blocks import encode
from ringfence.model.scripted.dialect import Dialect, Saying
from ringfence.model.scripted.script import Drop, Fault, JSONObject, Malformed, Slow, Stall, StreamError

_NOT_JSON = '{"id":'


@frozen
class Plan:
    """The bytes of an answer in order, with the pauses between them."""

    steps: tuple[bytes | float, ...]
    """Bytes to send, or seconds to wait."""
    content_type: str
    length: int | None = None
    """Content-Length to announce; None: chunked."""
    is_whole: bool = True
    """Whether the client can make a reply of it."""
    is_dropped: bool = False
    """Whether the connection is closed without an end."""
    slow: Slow | None = field(default=None)


def stream_plan(dialect: Dialect, reply: JSONObject, saying: Saying, fault: Fault | None) -> Plan:
    """The plan of a streamed answer."""
    frames = list(dialect.frames(reply, saying))
    kind, slow = "text/event-stream; charset=utf-8", saying.turn.slow
    if isinstance(fault, Stall):
        at = fault.after_events
        return Plan((*frames[:at], fault.seconds, *frames[at:]), kind, slow=slow)
    if isinstance(fault, Drop):
        return Plan(_kept(frames, fault), kind, is_whole=False, is_dropped=True, slow=slow)
    if isinstance(fault, Malformed | StreamError):
        kept = frames[: fault.after_events]
        broken = dialect.broken_frame(fault, reply, len(kept))
        return Plan((*kept, broken), kind, is_whole=False, slow=slow)
    return Plan(tuple(frames), kind, slow=slow)


def whole_plan(reply: JSONObject, fault: Fault | None, *, slow: Slow | None) -> Plan:
    """The plan of an answer in one piece. There `stream_error` drops it at the start."""
    body = encode(reply)
    kind, length = "application/json", len(body)
    if isinstance(fault, Stall):
        return Plan((fault.seconds, body), kind, length, slow=slow)
    if isinstance(fault, Malformed):
        data = (_NOT_JSON if fault.data is None else fault.data).encode()
        return Plan((data,), kind, len(data), is_whole=False, slow=slow)
    if isinstance(fault, Drop):
        cut = body[: length // 2 if fault.after_bytes is None else fault.after_bytes]
        return Plan((cut,), kind, length, is_whole=False, is_dropped=True, slow=slow)
    if isinstance(fault, StreamError):
        return Plan((), kind, length, is_whole=False, is_dropped=True, slow=slow)
    return Plan((body,), kind, length, slow=slow)


def _kept(frames: Sequence[bytes], drop: Drop) -> tuple[bytes, ...]:
    if drop.after_events is not None:
        return tuple(frames[: drop.after_events])
    return (b"".join(frames)[: drop.after_bytes],)


class ScriptedResponse(Response):
    """An ASGI response that follows a plan.

    Args:
        plan: What to send.
        on_sent: Called just before the last bytes of a whole answer go out.
        headers: More headers, such as the one with the request's id.
    """

    def __init__(self, plan: Plan, *, on_sent: Callable[[], None], headers: Mapping[str, str]) -> None:
        self._plan = plan
        self._on_sent = on_sent
        sent = {**headers, "content-type": plan.content_type, "cache-control": "no-cache"}
        if plan.length is not None:
            sent["content-length"] = str(plan.length)
        super().__init__(headers=sent)
        if plan.length is None:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI
        """Send it."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        steps = list(self._cut())
        for number, step in enumerate(steps, start=1):
            if isinstance(step, float):
                await anyio.sleep(step)
                continue
            if number == len(steps) and self._plan.is_whole:
                self._on_sent()
            await send({"type": "http.response.body", "body": step, "more_body": True})
        if not self._plan.is_dropped:  # without this last message the server closes the connection
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _cut(self) -> Iterator[bytes | float]:
        slow = self._plan.slow
        for step in self._plan.steps:
            if isinstance(step, float) or slow is None:
                yield step
                continue
            for at in range(0, len(step), slow.chunk_bytes):
                if at:
                    yield float(slow.delay_s)
                yield step[at : at + slow.chunk_bytes]
