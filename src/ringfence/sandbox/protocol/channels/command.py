"""The host's end of one command's channel: output as it was granted, stdin as the guest grants, one end."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.records import Exit, Failure, ProtocolError, parse_exit, parse_failure

Sink = Callable[[int, bytes], None]
"""Takes (frames.STDOUT or frames.STDERR, bytes) as they come; must not block."""


class Poster(Protocol):
    """The way to the guest."""

    def post(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame."""


class Channel:
    """One command's frames. `end` is set by the guest's last frame, `error` when the sandbox died first."""

    def __init__(self, link: Poster, number: int, window: int, sink: Sink) -> None:
        self.number = number
        self.end: Exit | Failure | None = None
        self.error: BaseException | None = None
        self._link = link
        self._sink = sink
        self._granted = {frames.STDOUT: window, frames.STDERR: window}
        self._owed = {frames.STDOUT: 0, frames.STDERR: 0}
        self._batch = window // 2
        self._stdin_credit = frames.STDIN_WINDOW
        self._waiting: set[asyncio.Future[None]] = set()
        self.on_end: Callable[[], None] = _nothing
        self.on_refused: Callable[[str], None] | None = None
        """Is told what the end says of refusals; None: it is not believed."""
        """Called once when `end` or `error` is set."""

    @property
    def is_over(self) -> bool:
        """Whether the guest's last frame has come."""
        return self.end is not None

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
        if self.on_refused is not None and isinstance(end, Exit):
            for line in end.refused:
                self.on_refused(line)
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
            await self._change()
        return self.end

    async def send_stdin(self, data: bytes) -> bool:
        """Send as the guest grants; False if the command ended before it took all."""
        view = memoryview(data)
        while view and self.end is None:
            if self.error is not None:
                raise self.error
            if self._stdin_credit == 0:
                await self._change()
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

    async def _change(self) -> None:
        """Wait for an end, an error or credit. A future, for an `anyio.Event` takes five times as long to make."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


def _nothing() -> None:
    """Nobody wants to know."""
