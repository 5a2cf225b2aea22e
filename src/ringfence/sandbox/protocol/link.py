"""Sends and receives frames on the stream to the guest, and manages its channels. Every byte it sends is hostile.

If a guest breaks the protocol (an unknown frame, a channel that was not opened, more bytes than were granted, a frame
after the last), its sandbox is killed. The credit of the open channels bounds the memory that a guest can use on the
host.
"""

from collections import Counter
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.records import ProtocolError, parse_record
from ringfence.sandbox.protocol.stream import SendQueue, Wakeup

_READ = 68 * 1024
"""Bytes read at once: a whole frame of a connection; for more, each read would request memory of the kernel again."""

_OUTGOING_HIGH = 4 * 1024 * 1024
"""Bytes to be sent above which nothing is read, so that a guest that only sends cannot pile up our responses."""
_FULL = 1024 * 1024
"""Bytes to be sent above which connections wait before they send more."""
MOST_CONNECTIONS = 256
"""Connections at once in one sandbox; the guest refuses further ones."""


class Endpoint(Protocol):
    """Receives the frames of a channel."""

    @property
    def is_over(self) -> bool:
        """Whether the guest's last frame has arrived, and ours is sent."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the guest for this channel."""

    def fail(self, error: BaseException) -> None:
        """Handle that the sandbox is gone."""


class GuestLink:
    """Both directions of the stream, and the channels on it.

    Args:
        stream: To the guest and from it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.outgoing = SendQueue(stream)
        self._turns = anyio.Lock(fast_acquire=True)
        self._reader = frames.FrameReader(frames.MAX_PAYLOAD, self._dispatch)
        self.channels: dict[int, Endpoint] = {}
        self._last_number = 0
        self._asked = Counter({frames.HELLO: 1})
        """How many frames of each kind the guest owes us on channel 0."""
        self._answered = Counter[int]()
        self._last_answers: dict[int, bytes] = {}
        self._changed = Wakeup()
        self.hello: dict[str, str] = {}
        """The guest's report about itself in its first frame."""
        self.bye: str | None = None
        self.frames_seen = 0
        self.error: BaseException | None = None

    # --- sending

    def post(self, kind: int, channel: int, payload: bytes | memoryview = b"") -> None:
        """Queue a frame. The guest's grants bound the queue; frames posted in one turn of the loop are sent together.

        Args:
            kind: One of the kinds in `frames`.
            channel: The number of its channel.
            payload: Its bytes, which must not change afterwards.
        """
        if self.error is None:
            self.outgoing.append(frames.HEADER.pack(len(payload), channel, kind))
            if payload:
                self.outgoing.append(payload)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are queued for the guest that a connection must wait before it sends more."""
        return self.outgoing.size >= _FULL

    async def wait_for_turn(self) -> None:
        """Wait until there may be room, or the sandbox is gone; check `is_full` again before sending."""
        async with self._turns:
            await self.outgoing.wait_until_below(_FULL)

    # --- channels

    def open(self, endpoint: Endpoint) -> int:
        """Deliver the frames of a new channel to `endpoint` until it is over; return the channel's number.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.error is not None:
            raise self.error
        self._last_number += 1
        self.channels[self._last_number] = endpoint
        return self._last_number

    def adopt(self, number: int, endpoint: Endpoint) -> None:
        """Attach a connection whose number the guest chose."""
        if number < frames.GUEST_NUMBERS or number in self.channels:
            raise ProtocolError(f"gave a connection the number {number}, which is not free")
        if sum(other >= frames.GUEST_NUMBERS for other in self.channels) >= MOST_CONNECTIONS:
            raise ProtocolError(f"accepted more than {MOST_CONNECTIONS} connections at once")
        self.channels[number] = endpoint

    def release(self, number: int) -> None:
        """Release the number of a channel that is over."""
        self.channels.pop(number, None)

    # --- requests on channel 0

    def ask(self, question: int, answer: int) -> int:
        """Send a request; return its place among those with this kind of response, for `wait_for_answer`."""
        self._asked[answer] += 1
        self.post(question, 0)
        return self._asked[answer]

    async def wait_for_answer(self, answer: int, place: int) -> bytes:
        """Wait until a request is answered; return the latest response of this kind.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        while self._answered[answer] < place:
            if self.error is not None:
                raise self.error
            await self._changed.wait()
        return self._last_answers[answer]

    async def death(self) -> BaseException:
        """Wait until the sandbox is gone; return the reason that `fail` was given."""
        while self.error is None:
            await self._changed.wait()
        return self.error

    def fail(self, error: BaseException) -> None:
        """Report to all waiting tasks why the sandbox is gone. The first reason is kept."""
        if self.error is not None:
            return
        self.error = error
        for channel in list(self.channels.values()):
            channel.fail(error)
        self.channels.clear()
        self.outgoing.clear()
        self._changed.notify_all()

    # --- receiving

    async def read_forever(self) -> None:
        """Read frames until the guest closes the stream, or has sent its last frame.

        Raises:
            ProtocolError: It violated the protocol.
        """
        while self.bye is None:
            try:
                data = await self._stream.receive(_READ)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            try:
                self._reader.feed(data)
            except frames.FrameError as exc:
                raise ProtocolError(str(exc)) from exc
            await self.outgoing.wait_until_below(_OUTGOING_HIGH)

    def _dispatch(self, kind: int, number: int, payload: bytes) -> None:
        self.frames_seen += 1
        if self.bye is not None:
            raise ProtocolError("went on after its last frame")
        if number == 0:
            self._on_control(kind, payload)
            return
        channel = self.channels.get(number)
        if channel is None:
            raise ProtocolError(f"sent frame kind {kind} on channel {number}, which is not open")
        channel.on_frame(kind, payload)
        if channel.is_over:
            self.release(number)

    def _on_control(self, kind: int, payload: bytes) -> None:
        if kind == frames.BYE:
            self.bye = parse_record(payload, dict[str, str]).get("reason", "")
            return
        if self._answered[kind] >= self._asked[kind]:
            raise ProtocolError(f"sent frame kind {kind} on channel 0, which was not asked for")
        if kind == frames.HELLO:
            self.hello = parse_record(payload, dict[str, str])
        self._answered[kind] += 1
        self._last_answers[kind] = payload
        self._changed.notify_all()
