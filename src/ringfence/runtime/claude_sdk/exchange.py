"""Between a client inside and the SDK on the host: what passes is checked, bounded, and told before it has an effect.

The SDK answers in tasks of its own, which it cancels as it likes; so what is told and sent is told and sent here, in
one task that belongs to the run.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Protocol

import anyio
import msgspec

from ringfence.events import Event
from ringfence.frozen import frozen
from ringfence.runtime.base import Emit
from ringfence.runtime.claude_sdk.asked import Asked, asked_of
from ringfence.runtime.claude_sdk.wire import ASKS, control_of, refusal, request_id_of
from ringfence.runtime.surrogates import is_text, scrubbed
from ringfence.runtime.transcript.base import dict_of
from ringfence.runtime.transcript.record import JSONObject

MOST_AT_ONCE = 64
"""Requests of a client's that are being answered; a further one is refused."""

_BUFFER = 256
_BUSY = f"the host is answering {MOST_AT_ONCE} requests already"
_ENDED = "the client has ended"
_MALFORMED = f"the host answers {', '.join(sorted(ASKS))}, each in its shape"


class Stdin(Protocol):
    """A client's input."""

    async def send(self, data: bytes) -> None:
        """Send bytes."""

    async def aclose(self) -> None:
        """Tell that nothing more comes."""


@frozen
class _Outgoing:
    message: JSONObject
    is_answer: bool = False
    """To a request that was admitted; told before it is sent."""


class Exchange:
    """The control messages of one run.

    Args:
        emit: Records an event.
        changed: Called when a request is admitted, and when one is over.
    """

    def __init__(self, emit: Emit, changed: Callable[[], None] = lambda: None) -> None:
        self._emit = emit
        self._changed = changed
        self._asked: dict[str, Asked] = {}
        self._own: set[str] = set()
        """Requests of the SDK's that are not answered yet."""
        self._occasions: dict[str, str] = {}
        self._number = 0
        self.is_over = False
        """Whether nothing more comes from inside."""
        self._inward, self._outbox = anyio.create_memory_object_stream[_Outgoing | None](_BUFFER)
        self._upward, self._inbox = anyio.create_memory_object_stream[JSONObject](_BUFFER)

    async def take(self, value: JSONObject) -> None:
        """A control message from inside, which may be anything."""
        message = control_of(value)
        if message is None or not is_text(message):
            await self._refuse(request_id_of(value), _MALFORMED)
        elif await _TAKING[message["type"]](self, message):
            await self._upward.send(message)

    async def _take_request(self, message: JSONObject) -> bool:
        request_id = message["request_id"]
        if len(self._asked) >= MOST_AT_ONCE or request_id in self._asked:
            await self._refuse(request_id, _BUSY)
            return False
        self._number += 1
        asked = self._asked[request_id] = asked_of(message, self._occasions, self._number)
        self._changed()
        await self._tell(asked.called)
        return True

    async def _take_cancel(self, message: JSONObject) -> bool:
        asked = self._over(message["request_id"])
        await self._tell(asked.cancelled() if asked else None)
        return asked is not None

    async def _take_response(self, message: JSONObject) -> bool:
        request_id = message["response"]["request_id"]
        is_awaited = request_id in self._own
        self._own.discard(request_id)
        return is_awaited

    async def _refuse(self, request_id: str, reason: str) -> None:
        if request_id and is_text(request_id):
            await self._send(_Outgoing(refusal(request_id, reason)))

    def _over(self, request_id: str) -> Asked | None:
        asked = self._asked.pop(request_id, None)
        self._changed()
        return asked

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for an answer."""
        return bool(self._asked)

    async def interrupt(self) -> None:
        """The client is told to leave off, and that nothing more comes."""
        asked = {"type": "control_request", "request_id": "interrupt", "request": {"subtype": "interrupt"}}
        await self._send(_Outgoing(asked))
        await self.end_input()

    async def finish(self) -> None:
        """The client's output is over: what it asked for is not answered any more, nor what the SDK asked for."""
        self.is_over = True
        for asked in self._asked.values():
            await self._tell(asked.cancelled())
        self._asked.clear()
        for request_id in tuple(self._own):
            await self._upward.send(refusal(request_id, _ENDED))
        self._upward.close()

    async def messages(self) -> AsyncIterator[JSONObject]:
        """What the SDK reads, until the client's output is over."""
        async for message in self._inbox:
            yield message

    async def write(self, message: JSONObject) -> None:
        """What the SDK writes. An answer that nobody waits for any more is lost.

        Raises:
            ConnectionError: A question, to a client that has ended.
        """
        if message.get("type") == "control_request":
            if self.is_over:
                raise ConnectionError(_ENDED)
            self._own.add(message["request_id"])
            self._learn(dict_of(message.get("request")))
        await self._send(_Outgoing(message, is_answer=message.get("type") == "control_response"))

    def _learn(self, request: JSONObject) -> None:
        """Which callback is for which occasion: the SDK numbers them, and says so in its first request."""
        for occasion, matchers in dict_of(request.get("hooks")).items():
            for matcher in matchers:
                self._occasions |= dict.fromkeys(matcher["hookCallbackIds"], occasion)

    async def end_input(self) -> None:
        """The client is told that nothing more comes."""
        await self._send(None)

    async def _send(self, outgoing: "_Outgoing | None") -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._inward.send(outgoing)

    async def serve(self, stdin: Stdin) -> None:
        """Tell and send what is written, in order, until the input is ended."""
        with self._outbox:
            async for outgoing in self._outbox:
                if outgoing is None:
                    break
                if not outgoing.is_answer or await self._is_told(dict_of(outgoing.message.get("response"))):
                    await stdin.send(_line(outgoing.message))
        await stdin.aclose()

    async def _is_told(self, response: JSONObject) -> bool:
        """Tell an answer, unless the client has given up waiting for it."""
        asked = self._over(response["request_id"])
        await self._tell(asked.answered(response) if asked else None)
        return asked is not None

    def close(self) -> None:
        """Let go of everything."""
        for stream in (self._inward, self._outbox, self._upward, self._inbox):
            stream.close()

    async def _tell(self, event: Event | None) -> None:
        if event is not None:
            await self._emit(event if is_text(event) else _scrubbed(event))


_TAKING = {
    "control_request": Exchange._take_request,
    "control_response": Exchange._take_response,
    "control_cancel_request": Exchange._take_cancel,
}


def _line(message: JSONObject) -> bytes:
    """A line that any reader takes: a number that is none, and half a character, are a function's, not the SDK's."""
    return msgspec.json.encode(message if is_text(message) else scrubbed(message)) + b"\n"


def _scrubbed(event: Event) -> Event:
    """An event without halves of surrogate pairs, which a function of the user's may return."""
    return msgspec.convert(scrubbed(msgspec.to_builtins(event)), type(event))
