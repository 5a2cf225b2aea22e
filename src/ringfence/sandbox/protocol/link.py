"""The host's end of the one stream: frames, channels, credit. Every byte from the guest is hostile.

A guest that breaks the protocol (an unknown frame, a channel nobody opened, more bytes than were granted, a
frame after the last) loses its sandbox. What it can make us hold is bounded by the open channels' credit.
"""

from collections.abc import Callable
from typing import Protocol

import anyio

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.channels.command import Channel, Sink
from ringfence.sandbox.protocol.inflow import Inflow
from ringfence.sandbox.protocol.outflow import Outflow
from ringfence.sandbox.protocol.records import ProtocolError, parse_record

_READ = 68 * 1024
"""A frame of what a connection carries, whole; memory for more would be had from the kernel anew for each piece."""

_OUTGOING_HIGH = 4 * 1024 * 1024
"""With so much to be sent, nothing is read: a guest that only sends cannot pile up our answers."""
MOST_CONNECTIONS = 256
"""Connections at once in one sandbox; the guest refuses further ones."""

Translation = Callable[[bytes], bytes]


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
        read_fd: Non-blocking; the guest's stdout.
        write_fd: Non-blocking; the guest's stdin.
        wrap: What is written to `write_fd` for bytes to the guest.
        unwrap: What the guest sent in bytes from `read_fd`.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        wrap: Translation | None = None,
        unwrap: Translation | None = None,
    ) -> None:
        self._read_fd = read_fd
        self._wrap = wrap or _same
        self._unwrap = unwrap or _same
        self._outflow = Outflow(write_fd, self._on_sent)
        self._inflow: Inflow | None = None
        self._rest = b""
        self._channels: dict[int, Endpoint] = {}
        self._commands = 0
        self._accepted = 0
        self._last_number = 0
        self._replies: dict[int, list[tuple[anyio.Event, list[bytes]]]] = {}
        self.hello: dict[str, str] | None = None
        self.bye: str | None = None
        self.frames_seen = 0
        self.error: BaseException | None = None
        self._failed = anyio.Event()

    # --- out

    def post(self, kind: int, channel: int, payload: bytes = b"", *, more: bool = False) -> None:
        """Queue a frame, send at once what the stream takes; the queue is bounded by the guest's grants.

        Args:
            kind: One of `frames`.
            channel: Whose it is.
            payload: Its bytes.
            more: Another is posted at once, and both shall go together: each write wakes the guest.
        """
        if self.error is not None:
            return  # the descriptors may be somebody else's by now
        self._outflow.send(self._wrap(frames.HEADER.pack(len(payload), channel, kind) + payload), more=more)

    def post_raw(self, data: bytes) -> None:
        """Send bytes before the first frame: the guest's own modules."""
        self._outflow.send(self._wrap(data))

    async def write_forever(self) -> None:
        """Send what `post` could not send at once.

        Raises:
            ProtocolError: The guest has not read for 30 s.
        """
        await self._outflow.run()

    @property
    def is_full(self) -> bool:
        """Whether so much is on its way to the guest that a connection must wait for its turn to send more."""
        return self._outflow.is_full

    async def wait_for_turn(self) -> None:
        """Wait until there may be room, or the sandbox is gone. Look again then, and send at once or not at all."""
        await self._outflow.wait_for_turn()

    def _on_sent(self) -> None:
        if self._inflow is not None and len(self._outflow) <= _OUTGOING_HIGH:
            self._inflow.go_on()

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

    def open(self, record: bytes, *, window: int, sink: Sink, more: bool = False) -> Channel:
        """Open a channel with an OPEN record.

        Args:
            record: Its fields, but for the window.
            window: Bytes of each output that may be on their way.
            sink: Takes the output.
            more: As in `post`.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        channel = Channel(self, self.next_number(), window, sink)
        self.attach(channel.number, channel)
        self._commands += 1
        record += frames.encode_record([("window", window)])
        self.post(frames.OPEN, channel.number, record, more=more)
        return channel

    async def ask(self, question: int, answer: int) -> bytes:
        """Send a question on channel 0 and wait for its answer."""
        if self.error is not None:
            raise self.error
        event, box = anyio.Event(), list[bytes]()
        self._replies.setdefault(answer, []).append((event, box))
        self.post(question, 0)
        await event.wait()
        if not box:
            assert self.error is not None
            raise self.error
        return box[0]

    async def death(self) -> BaseException:
        """Wait until the sandbox is gone; return what `fail` was told."""
        if self.error is None:
            await self._failed.wait()
        assert self.error is not None
        return self.error

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone: everyone who waits is told. Why it went first is what is told ever after."""
        if self.error is not None:
            return
        self.error = error
        for channel in list(self._channels.values()):
            channel.fail(error)
        self._channels.clear()
        for waiters in self._replies.values():
            for event, _box in waiters:
                event.set()
        self._replies.clear()
        self._outflow.drop()
        self._failed.set()

    # --- in

    async def read_forever(self) -> None:
        """Read frames until the guest closes the stream.

        Raises:
            ProtocolError: It sent what it must not.
        """
        self._inflow = Inflow(self._read_fd, self._take, most_bytes=_READ)
        await self._inflow.run()

    def _take(self, data: bytes) -> None:
        """The next bytes of the stream."""
        data = self._unwrap(data)
        self._rest = self._parse(self._rest + data if self._rest else data)
        assert self._inflow is not None
        if self.bye is not None:
            self._inflow.stop()
        elif len(self._outflow) > _OUTGOING_HIGH:
            self._inflow.pause()

    def _parse(self, data: bytes) -> bytes:
        """Handle the whole frames in `data`; return what is left."""
        header, position, end = frames.HEADER, 0, len(data)
        while end - position >= header.size:
            length, number, kind = header.unpack_from(data, position)
            if length > frames.MAX_PAYLOAD:
                raise ProtocolError(f"announced a frame of {length} bytes")
            if end - position - header.size < length:
                break
            position += header.size + length
            self.frames_seen += 1
            self._dispatch(number, kind, data[position - length : position])
        return data[position:]

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
        waiters = self._replies.get(kind)
        if kind != frames.HELLO and not waiters:
            raise ProtocolError(f"answered what was not asked (kind {kind})")
        if waiters:
            event, box = waiters.pop(0)
            box.append(payload)
            event.set()

    async def wait_for_hello(self) -> dict[str, str]:
        """The guest's first frame."""
        if self.hello is None and self.error is None:
            event, box = anyio.Event(), list[bytes]()
            self._replies.setdefault(frames.HELLO, []).append((event, box))
            await event.wait()
        if self.hello is None:
            assert self.error is not None
            raise self.error
        return self.hello


def _same(data: bytes) -> bytes:
    return data
