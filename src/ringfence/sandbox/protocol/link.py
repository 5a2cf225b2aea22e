"""The host's end of the one stream: frames, channels, credit. Every byte from the guest is hostile.

A guest that breaks the protocol (an unknown frame, a channel nobody opened, more bytes than were granted, a
frame after the last) loses its sandbox. What it can make us hold is bounded by the open channels' credit.
"""

from collections import deque
from typing import Protocol

import anyio
from anyio.abc import ByteStream

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.command import Channel, Sink
from ringfence.sandbox.protocol.records import ProtocolError, parse_record
from ringfence.sandbox.protocol.stream import SendQueue

_READ = 68 * 1024
"""A frame of what a connection carries, whole; memory for more would be had from the kernel anew for each piece."""

_OUTGOING_HIGH = 4 * 1024 * 1024
"""With so much to be sent, nothing is read: a guest that only sends cannot pile up our answers."""
_FULL = 1024 * 1024
"""With so much to be sent, connections wait for a turn to send more."""
MOST_CONNECTIONS = 256
"""Connections at once in one sandbox; the guest refuses further ones."""


class Endpoint(Protocol):
    """What takes the frames of a channel."""

    @property
    def is_over(self) -> bool:
        """Whether the guest's last frame has come, and ours has gone."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the guest for this channel."""

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""


class GuestLink:
    """Both directions of the stream, and the channels on it.

    Args:
        stream: To the guest and from it.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.outgoing = SendQueue(stream)
        self._turns = anyio.Lock(fast_acquire=True)
        self._rest = bytearray()
        """The beginning of a frame."""
        self._channels: dict[int, Endpoint] = {}
        self._commands = 0
        self._accepted = 0
        self._last_number = 0
        self._replies: dict[int, deque[_Reply]] = {}
        self.hello: dict[str, str] | None = None
        self.bye: str | None = None
        self.frames_seen = 0
        self.error: BaseException | None = None
        self._failed = anyio.Event()

    # --- out

    def post(self, kind: int, channel: int, payload: bytes | memoryview = b"") -> None:
        """Queue a frame. The queue is bounded by the guest's grants; what is posted in one turn goes out together.

        Args:
            kind: One of `frames`.
            channel: Whose it is.
            payload: Its bytes, which do not change any more.
        """
        if self.error is None:
            self.outgoing.append(frames.HEADER.pack(len(payload), channel, kind))
            if payload:
                self.outgoing.append(payload)

    @property
    def is_full(self) -> bool:
        """Whether so much is on its way to the guest that a connection must wait for its turn to send more."""
        return self.outgoing.size >= _FULL

    async def wait_for_turn(self) -> None:
        """Wait until there may be room, or the sandbox is gone. Look again then, and send at once or not at all."""
        async with self._turns:
            await self.outgoing.wait_until_below(_FULL)

    # --- channels

    @property
    def open_commands(self) -> int:
        """How many commands have not come to their end."""
        return self._commands

    def next_number(self) -> int:
        """A channel's number that was never used."""
        self._last_number += 1
        return self._last_number

    def attach(self, number: int, endpoint: Endpoint) -> None:
        """Hand the frames of channel `number` to `endpoint` until it is over.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.error is not None:
            raise self.error
        self._channels[number] = endpoint

    def adopt(self, number: int, endpoint: Endpoint) -> None:
        """Attach a connection whose number the guest picked."""
        if number < frames.GUEST_NUMBERS or number in self._channels:
            raise ProtocolError(f"gave a connection the number {number}, which is not free")
        if self._accepted >= MOST_CONNECTIONS:
            raise ProtocolError(f"accepted more than {MOST_CONNECTIONS} connections at once")
        self._accepted += 1
        self._channels[number] = endpoint

    def release(self, number: int) -> None:
        """Channel `number` is over."""
        if self._channels.pop(number, None) is not None and number >= frames.GUEST_NUMBERS:
            self._accepted -= 1

    def open(self, record: bytes, *, window: int, sink: Sink) -> Channel:
        """Open a channel with an OPEN record.

        Args:
            record: Its fields, but for the window.
            window: Bytes of each output that may be on their way.
            sink: Takes the output.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        channel = Channel(self, self.next_number(), window, sink)
        self.attach(channel.number, channel)
        self._commands += 1
        record += frames.encode_record([("window", window)])
        self.post(frames.OPEN, channel.number, record)
        return channel

    async def ask(self, question: int, answer: int) -> bytes:
        """Send a question on channel 0 and wait for its answer.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.error is not None:
            raise self.error
        reply = self._expect(answer)
        self.post(question, 0)
        return await self._answer_of(reply)

    def ping(self) -> None:
        """Ask the guest for a sign of life, which `frames_seen` counts."""
        self._expect(frames.PONG)
        self.post(frames.PING, 0)

    async def wait_for_hello(self) -> dict[str, str]:
        """The guest's first frame.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.hello is None:
            await self._answer_of(self._expect(frames.HELLO))
        assert self.hello is not None
        return self.hello

    def _expect(self, answer: int) -> "_Reply":
        reply = _Reply()
        self._replies.setdefault(answer, deque()).append(reply)
        return reply

    async def _answer_of(self, reply: "_Reply") -> bytes:
        if self.error is None:
            await reply.came.wait()
        if reply.payload is None:
            assert self.error is not None
            raise self.error
        return reply.payload

    async def death(self) -> BaseException:
        """Wait until the sandbox is gone; return the reason that `fail` was given."""
        if self.error is None:
            await self._failed.wait()
        assert self.error is not None
        return self.error

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone: everyone who waits gets the reason. The first reason stays."""
        if self.error is not None:
            return
        self.error = error
        for channel in list(self._channels.values()):
            channel.fail(error)
        self._channels.clear()
        for replies in self._replies.values():
            for reply in replies:
                reply.came.set()
        self._replies.clear()
        self.outgoing.clear()
        self._failed.set()

    # --- in

    async def read_forever(self) -> None:
        """Read frames until the guest closes the stream, or has sent its last frame.

        Raises:
            ProtocolError: It sent what it must not.
        """
        while self.bye is None:
            try:
                data = await self._stream.receive(_READ)
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return
            self._take(data)
            await self.outgoing.wait_until_below(_OUTGOING_HIGH)

    def _take(self, data: bytes) -> None:
        """Handle the next bytes of the stream; what is no whole frame yet is kept."""
        if not self._rest:
            self._rest += data[self._parse(data) :]
            return
        self._rest += data
        with memoryview(self._rest) as view:
            position = self._parse(view)
        del self._rest[:position]

    def _parse(self, data: bytes | memoryview) -> int:
        """Handle the whole frames in `data`; return where they end."""
        header, position, end = frames.HEADER, 0, len(data)
        while end - position >= header.size:
            length, number, kind = header.unpack_from(data, position)
            if length > frames.MAX_PAYLOAD:
                raise ProtocolError(f"announced a frame of {length} bytes")
            if end - position - header.size < length:
                break
            position += header.size + length
            self.frames_seen += 1
            self._dispatch(number, kind, bytes(data[position - length : position]))
        return position

    def _dispatch(self, number: int, kind: int, payload: bytes) -> None:
        if self.bye is not None:
            raise ProtocolError("went on after its last frame")
        if number == 0:
            self._on_control(kind, payload)
            return
        channel = self._channels.get(number)
        if channel is None:
            raise ProtocolError(f"sent frame kind {kind} on channel {number}, which is not open")
        channel.on_frame(kind, payload)
        if channel.is_over:
            self.release(number)
            if isinstance(channel, Channel):
                self._commands -= 1

    def _on_control(self, kind: int, payload: bytes) -> None:
        if kind == frames.HELLO and self.hello is None:
            self.hello = parse_record(payload)
            payload = b""
        elif kind == frames.BYE:
            self.bye = parse_record(payload).get("reason", "")
            return
        elif kind not in (frames.PONG, frames.STATS_REPLY):
            raise ProtocolError(f"sent frame kind {kind} on channel 0")
        replies = self._replies.get(kind)
        if kind != frames.HELLO and not replies:
            raise ProtocolError(f"answered what was not asked (kind {kind})")
        if replies:
            reply = replies.popleft()
            reply.payload = payload
            reply.came.set()


class _Reply:
    """What the guest answers to one question."""

    def __init__(self) -> None:
        self.came = anyio.Event()
        self.payload: bytes | None = None
