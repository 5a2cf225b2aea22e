"""A command's output as events while it runs, for a person who watches.

Only the first 64 KiB of a command's output are forwarded, so that watching stays cheap.
"""

import codecs
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from ringfence.background_tasks import background_tasks
from ringfence.events import OutputStreamed

_LIMIT_BYTES = 64 * 1024
"""Output forwarded for one command, at most."""
_INTERVAL_S = 0.1
"""Minimum time between two events, so that many small writes become one."""

Emit = Callable[[OutputStreamed], Awaitable[None]]


class OutputFeed:
    """Collects output without blocking; `output_feed` forwards it.

    Args:
        emit: Shows an event.
        call_id: Of the call that the command belongs to.
    """

    def __init__(self, emit: Emit, call_id: str) -> None:
        self._emit = emit
        self._call_id = call_id
        self._left = _LIMIT_BYTES
        self._waiting: list[tuple[bytes, bool]] = []
        self._changed = anyio.Event()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {is_stderr: decoder("replace") for is_stderr in (False, True)}

    def take(self, chunk: bytes, is_stderr: bool) -> None:
        """Take the next piece; what is beyond the limit is dropped."""
        if self._left > 0:
            self._waiting.append((chunk[: self._left], is_stderr))
            self._left -= len(chunk)
            self._changed.set()

    async def forward(self) -> None:
        """Emit what has come, until cancelled."""
        while True:
            await self._changed.wait()
            await self.flush()
            await anyio.sleep(_INTERVAL_S)

    async def flush(self) -> None:
        """Emit all that is waiting."""
        self._changed = anyio.Event()
        while self._waiting:  # piece by piece: one that is cancelled loses no other
            chunk, is_stderr = self._waiting.pop(0)
            await self._show(self._decoders[is_stderr].decode(chunk), is_stderr)

    async def finish(self) -> None:
        """Emit all that is waiting, and what is left of a character that was cut."""
        await self.flush()
        for is_stderr, decoder in self._decoders.items():
            await self._show(decoder.decode(b"", final=True), is_stderr)

    async def _show(self, text: str, is_stderr: bool) -> None:
        if text:
            await self._emit(OutputStreamed(call_id=self._call_id, text=text, is_stderr=is_stderr))


@asynccontextmanager
async def output_feed(emit: Emit, call_id: str) -> AsyncIterator[OutputFeed]:
    """Forward a command's output while the context is open, and flush the rest on exit."""
    feed = OutputFeed(emit, call_id)
    async with background_tasks() as tasks:
        tasks.start_soon(feed.forward)
        yield feed
    await feed.finish()
