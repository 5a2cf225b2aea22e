"""What comes from a descriptor, listened to all the time.

A task that begins to listen for each piece anew asks the kernel twice more for each; with a stream that carries small
pieces of much else that is a good part of what a piece costs.
"""

import asyncio
import os
from types import TracebackType
from typing import Self


class Inflow:
    """Reads a descriptor, one piece ahead. Used as a context; the descriptor must stay open until that is left.

    Args:
        descriptor: Non-blocking.
        most_bytes: Of one piece.
    """

    def __init__(self, descriptor: int, *, most_bytes: int) -> None:
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._loop = asyncio.get_running_loop()
        self._piece: bytes | None = None
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._is_listening = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ignore()

    async def receive(self) -> bytes:
        """The next piece; empty at the end, however that came.

        Raises:
            OSError: It cannot be read.
        """
        if self._piece is None:
            self._waiter = self._loop.create_future()
            self._listen()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._error is not None:
            raise self._error
        piece = self._piece
        assert piece is not None
        if piece:
            self._piece = None
        return piece

    def _read(self) -> None:
        if self._piece is not None:
            self._ignore()  # nobody takes it: what more comes waits with its sender
            return
        try:
            self._piece = os.read(self._descriptor, self._most_bytes)
        except BlockingIOError:
            return
        except ConnectionResetError:
            self._piece = b""
        except OSError as error:
            self._error = error
        if not self._piece:
            self._ignore()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _listen(self) -> None:
        if not self._is_listening:
            self._is_listening = True
            self._loop.add_reader(self._descriptor, self._read)

    def _ignore(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._loop.remove_reader(self._descriptor)
