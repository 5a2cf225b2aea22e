"""The host's end of the one stream: frames, channels, credit. Every byte from the guest is hostile.

A guest that breaks the protocol (an unknown frame, a channel nobody opened, more bytes than were granted, a
frame after the last) loses its sandbox. What it can make us hold is bounded by the open channels' credit.
"""

import os
from collections.abc import Callable, Sequence

import anyio
from anyio import lowlevel

from ringfence.sandbox.guest import frames
from ringfence.sandbox.records import Exit, Failure, ProtocolError, parse_exit, parse_failure, parse_record

_READ = 1024 * 1024
_WRITE_STALL_S = 30.0

Translation = Callable[[bytes], bytes]

Sink = Callable[[int, bytes], None]
"""Takes (frames.STDOUT or frames.STDERR, bytes) as they come; must not block."""


class Channel:
    """One command's frames. `end` is set by the guest's last frame, `error` when the sandbox died first."""

    def __init__(self, link: "GuestLink", number: int, window: int, sink: Sink) -> None:
        self.number = number
        self.end: Exit | Failure | None = None
        self.error: BaseException | None = None
        self._link = link
        self._sink = sink
        self._granted = {frames.STDOUT: window, frames.STDERR: window}
        self._owed = {frames.STDOUT: 0, frames.STDERR: 0}
        self._batch = window // 2
        self._stdin_credit = frames.STDIN_WINDOW
        self._changed = anyio.Event()
        self.on_end: Callable[[], None] = _nothing
        """Called once when `end` or `error` is set."""

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the guest for this channel."""
        if kind in self._granted:
            self._granted[kind] -= len(payload)
            # Empty ones would cost no credit: a flood of them is held for nothing.
            if self._granted[kind] < 0 or not payload:
                raise ProtocolError("sent more output than was granted, or none in a frame for it")
            self._sink(kind, payload)
        elif kind == frames.CREDIT_IN and len(payload) == frames.U32.size:
            self._stdin_credit = min(self._stdin_credit + frames.U32.unpack(payload)[0], frames.STDIN_WINDOW)
            self._wake()
        elif kind == frames.EXIT:
            self._finish(parse_exit(payload))
        elif kind == frames.FAIL:
            self._finish(parse_failure(payload))
        else:
            raise ProtocolError(f"sent frame kind {kind} on a command's channel")

    def _finish(self, end: Exit | Failure) -> None:
        self.end = end
        self._wake()
        self.on_end()

    def fail(self, error: BaseException) -> None:
        """The sandbox is gone."""
        self.error = error
        self._wake()
        self.on_end()

    def consumed(self, kind: int, count: int) -> None:
        """The consumer took `count` bytes; grant as many again, in batches."""
        self._owed[kind] += count
        if self._owed[kind] >= self._batch and self.end is None:
            owed, self._owed[kind] = self._owed[kind], 0
            self._granted[kind] += owed
            credit = frames.CREDIT_OUT if kind == frames.STDOUT else frames.CREDIT_ERR
            self._link.post(credit, self.number, frames.U32.pack(owed))

    async def wait(self) -> Exit | Failure:
        """Wait for the end.

        Raises:
            SandboxDied: The sandbox went first.
        """
        while self.end is None:
            if self.error is not None:
                raise self.error
            await self._changed.wait()
        return self.end

    async def send_stdin(self, data: bytes) -> bool:
        """Send as the guest grants; False if the command ended before it took all."""
        view = memoryview(data)
        while view and self.end is None:
            if self.error is not None:
                raise self.error
            if self._stdin_credit == 0:
                await self._changed.wait()
                continue
            piece = view[: min(self._stdin_credit, frames.MAX_PAYLOAD)]
            self._stdin_credit -= len(piece)
            self._link.post(frames.STDIN, self.number, bytes(piece))
            view = view[len(piece) :]
        return not view

    def post(self, kind: int, payload: bytes = b"") -> None:
        """Send a control frame on this channel, unless it is over."""
        if self.end is None and self.error is None:
            self._link.post(kind, self.number, payload)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


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
        self._write_fd = write_fd
        self._wrap = wrap or _same
        self._unwrap = unwrap or _same
        self._outgoing = bytearray()
        self._wants_room = anyio.Event()
        self._channels: dict[int, Channel] = {}
        self._last_number = 0
        self._replies: dict[int, list[tuple[anyio.Event, list[bytes]]]] = {}
        self.hello: dict[str, str] | None = None
        self.bye: str | None = None
        self.frames_seen = 0
        self.error: BaseException | None = None
        self._failed = anyio.Event()

    # --- out

    def post(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame, send at once what the stream takes; the queue is bounded by the guest's grants."""
        if self.error is not None:
            return  # the descriptors may be somebody else's by now
        is_first = not self._outgoing
        self._outgoing += self._wrap(frames.HEADER.pack(len(payload), channel, kind) + payload)
        if is_first:
            self._flush()

    def post_raw(self, data: bytes) -> None:
        """Send bytes before the first frame: the guest's own modules."""
        self._outgoing += self._wrap(data)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                sent = os.write(self._write_fd, self._outgoing)
                del self._outgoing[:sent]
        except BlockingIOError:
            self._wants_room.set()
        except OSError:
            self._outgoing.clear()  # the guest is gone; the reader sees it too and tells why

    async def write_forever(self) -> None:
        """Send what `post` could not send at once.

        Raises:
            ProtocolError: The guest has not read for 30 s.
        """
        while True:
            await self._wants_room.wait()
            self._wants_room = anyio.Event()
            while self._outgoing:
                with anyio.move_on_after(_WRITE_STALL_S) as stall:
                    await anyio.wait_writable(self._write_fd)
                if stall.cancelled_caught:
                    raise ProtocolError(f"has not read its input for {_WRITE_STALL_S:g} s")
                self._flush()

    # --- channels

    @property
    def open_channels(self) -> int:
        """How many channels have not come to their end."""
        return len(self._channels)

    def open(self, fields: Sequence[tuple[str, object]], *, window: int, sink: Sink) -> Channel:
        """Open a channel with an OPEN record of `fields`.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.error is not None:
            raise self.error
        self._last_number += 1
        record = frames.encode_record([*fields, ("window", window)])
        channel = Channel(self, self._last_number, window, sink)
        self._channels[channel.number] = channel
        self.post(frames.OPEN, channel.number, record)
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
        self._outgoing.clear()
        self._failed.set()

    # --- in

    async def read_forever(self) -> None:
        """Read frames until the guest closes the stream.

        Raises:
            ProtocolError: It sent what it must not.
        """
        rest = b""
        while True:
            try:
                data = os.read(self._read_fd, _READ)
            except BlockingIOError:
                await anyio.wait_readable(self._read_fd)
                continue
            except ConnectionResetError:
                return
            if not data:
                return
            data = self._unwrap(data)
            rest = self._parse(rest + data if rest else data)
            if self.bye is not None:
                return
            await lowlevel.checkpoint()

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
        if channel.end is not None:
            del self._channels[number]

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


def _nothing() -> None:
    """Nobody wants to know."""
