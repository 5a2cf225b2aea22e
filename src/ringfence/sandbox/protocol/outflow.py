"""What goes to a descriptor: at once where that takes it, else queued; and whose turn it is while much is."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

import anyio

from ringfence.sandbox.protocol.records import ProtocolError

_STALL_S = 30.0
_FULL = 1024 * 1024


class Outflow:
    """Writes to a descriptor; never blocks, and holds what is handed to it until it is written.

    Args:
        descriptor: Non-blocking.
        on_sent: Called when some of what was queued is written.
    """

    def __init__(self, descriptor: int, on_sent: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_sent = on_sent
        self._queue = bytearray()
        self._is_held = False
        self._is_stuck = anyio.Event()
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        """Bytes that are queued."""
        return len(self._queue)

    def send(self, data: bytes, *, more: bool = False) -> None:
        """Write, or queue.

        Args:
            data: To be written.
            more: Keep it until the next call, so that both are written together.
        """
        if not self._queue and not more:
            self._queue += data[self._written(data) :]
            return
        is_first = not self._queue or self._is_held
        self._queue += data
        self._is_held = is_first and more
        if is_first and not more:
            self._flush()

    def _flush(self) -> None:
        del self._queue[: self._written(self._queue)]
        self._on_sent()
        self._admit()

    def _written(self, data: bytes | bytearray) -> int:
        """Write; how much is done with. The rest is up to `run`."""
        count = 0
        try:
            count = os.write(self._descriptor, data)
        except BlockingIOError:
            pass
        except OSError:
            return len(data)  # who reads there is gone; that is for others to see and tell
        if count < len(data):
            self._is_stuck.set()
        return count

    async def run(self) -> None:
        """Write what `send` could not write at once.

        Raises:
            ProtocolError: Nothing was read there for 30 s.
        """
        while True:
            await self._is_stuck.wait()
            self._is_stuck = anyio.Event()
            while self._queue:
                with anyio.move_on_after(_STALL_S) as stall:
                    await anyio.wait_writable(self._descriptor)
                if stall.cancelled_caught:
                    raise ProtocolError(f"has not read its input for {_STALL_S:g} s")
                self._flush()

    def drop(self) -> None:
        """Forget what is queued."""
        self._queue.clear()
        self._admit()

    # --- turns

    @property
    def is_full(self) -> bool:
        """Whether so much is queued that who can wait should."""
        return len(self._queue) >= _FULL

    async def wait_for_turn(self) -> None:
        """Wait until there may be room. Look again then, and send at once or not at all."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:  # it may be full for ever, while who waits is cancelled ever anew
                self._waiting.remove(turn)
            raise
        finally:
            # The next one's turn comes when this one has sent, or has found that it has nothing to send any more.
            turn.get_loop().call_soon(self._admit)

    def _admit(self) -> None:
        while self._waiting and not self.is_full:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
