"""The guest's end of the one stream: whole frames in, a bounded queue of frames out; never blocks."""

from __future__ import annotations

import posix as os
import select
import time

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from .loop import Loop

_READ = 68 * 1024
"""A frame of what a connection carries, mostly; memory for more would be had from the kernel anew for each piece."""
_QUEUE_HIGH, _QUEUE_LOW = 4 * 1024 * 1024, 1024 * 1024
_JOIN_BELOW = 4096
_BATCH = 64


class Stream:
    """Both directions of the stream to the host.

    Args:
        loop: Where it is waited.
        read_fd: Frames of the host.
        write_fd: Frames to the host.
        on_frame: Called with kind, channel and payload of each frame.
        on_room: Called when there is room again, after `is_full` was true for somebody.
        on_lost: Called when the host is gone; does not return.
    """

    def __init__(
        self,
        loop: Loop,
        read_fd: int,
        write_fd: int,
        on_frame: Callable[[int, int, bytes], None],
        on_room: Callable[[], None],
        on_lost: Callable[[], NoReturn],
    ) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_frame = on_frame
        self._on_room = on_room
        self._on_lost = on_lost
        self._rest = b""
        self._queue: list[bytes] = []
        self._queued = 0
        self._is_waiting = False
        self._held_somebody_up = False
        self.heard_at = time.monotonic()
        """When the host last sent something."""
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, False)
        loop.listen(read_fd, self._on_ready)

    @property
    def is_full(self) -> bool:
        """Whether what commands and connections say must wait for the host."""
        if self._queued > _QUEUE_HIGH:
            self._held_somebody_up = True
        return self._queued > _QUEUE_HIGH

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame and send what the stream takes."""
        header = frames.HEADER.pack(len(payload), channel, kind)
        self._queue += [header + payload] if len(payload) < _JOIN_BELOW else [header, payload]
        self._queued += len(header) + len(payload)
        if not self._is_waiting:
            self._flush(0)

    def drain(self) -> None:
        """Send all that is queued, waiting as long as it takes."""
        os.set_blocking(self._write_fd, True)
        self._flush(0)

    def _flush(self, _mask: int) -> None:
        while self._queue:
            try:
                self._drop(os.writev(self._write_fd, self._queue[:_BATCH]))
            except BlockingIOError:
                break
            except OSError:
                self._on_lost()
        must_wait = bool(self._queue)
        if must_wait != self._is_waiting:
            self._is_waiting = must_wait
            if must_wait:
                self._loop.listen(self._write_fd, self._flush, select.EPOLLOUT)
            else:
                self._loop.ignore(self._write_fd)
        if self._held_somebody_up and self._queued < _QUEUE_LOW:
            self._held_somebody_up = False
            self._on_room()

    def _drop(self, written: int) -> None:
        """Forget the bytes that were sent."""
        self._queued -= written
        done = 0
        while done < len(self._queue) and written >= len(self._queue[done]):
            written -= len(self._queue[done])
            done += 1
        del self._queue[:done]
        if written:
            self._queue[0] = self._queue[0][written:]

    def _on_ready(self, _mask: int) -> None:
        try:
            data = os.read(self._read_fd, _READ)
        except BlockingIOError:
            return
        if not data:
            self._on_lost()
        self.heard_at = time.monotonic()
        data = self._rest + data if self._rest else data
        position, end, size = 0, len(data), frames.HEADER.size
        while end - position >= size:
            length, channel, kind = frames.HEADER.unpack_from(data, position)
            if end - position - size < length:
                break
            position += size + length
            self._on_frame(kind, channel, data[position - length : position])
        self._rest = data[position:]
