"""What comes from a descriptor, listened to all the time, and handed on in the same turn of the event loop.

A task that begins to listen for each piece anew asks the kernel twice more for each, and one that is woken for it takes
a turn more; with a stream that carries small pieces of much else that is a good part of what a piece costs.
"""

import asyncio
import os
from collections.abc import Callable


class Inflow:
    """Reads a descriptor, which must stay open until `run` has returned.

    Args:
        descriptor: Non-blocking.
        take: Called with each piece; what it raises ends the reading.
        most_bytes: Of one piece.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None], *, most_bytes: int) -> None:
        self._descriptor = descriptor
        self._take = take
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._is_listening = False

    async def run(self) -> None:
        """Read until the end, however that comes, or until `stop`.

        Raises:
            OSError: It cannot be read.
            Exception: What `take` raised.
        """
        self.go_on()
        try:
            await self._over
        finally:
            self.pause()

    def stop(self) -> None:
        """Read no more."""
        self.pause()
        if not self._over.done():
            self._over.set_result(None)

    def pause(self) -> None:
        """Read nothing until `go_on`: what comes waits with its sender."""
        if self._is_listening:
            self._is_listening = False
            self._loop.remove_reader(self._descriptor)

    def go_on(self) -> None:
        """Read again, unless it is over."""
        if not self._is_listening and not self._over.done():
            self._is_listening = True
            self._loop.add_reader(self._descriptor, self._read)

    def _read(self) -> None:
        try:
            piece = os.read(self._descriptor, self._most_bytes)
        except BlockingIOError:
            return
        except ConnectionResetError:
            piece = b""
        except OSError as error:
            self._fail(error)
            return
        if not piece:
            self.stop()
            return
        try:
            self._take(piece)
        except Exception as error:  # noqa: BLE001 -- raised where `run` is awaited, not into the event loop
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.pause()
        if not self._over.done():
            self._over.set_exception(error)
