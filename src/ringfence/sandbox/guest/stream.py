"""The guest's event loop and its non-blocking end of the stream: reads whole frames, queues frames up to a bound."""

from __future__ import annotations

import posix as os
import select
import time

from . import frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, Optional

    Callback = Callable[[], None]

_READ = 68 * 1024
"""A little more than a frame of a connection's data; for more, Python would request memory of the kernel each time."""
_QUEUE_HIGH, _QUEUE_LOW = 4 * 1024 * 1024, 1024 * 1024
_JOIN_BELOW = 4096
_BATCH = 64
_LARGEST_FRAME = 2**32 - 1
"""The host is trusted: a command's arguments and environment may be as large as the kernel accepts."""


class EventLoop:
    """An epoll with a callback for each descriptor that can be read, or written, and for each timer."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._masks: dict[int, int] = {}
        self._timers: dict[Callback, float] = {}

    def set_reader(self, descriptor: int, callback: Optional[Callback]) -> None:
        """Call `callback` whenever `descriptor` can be read, or has ended; None stops watching for that."""
        self._set(self._readers, descriptor, callback)

    def set_writer(self, descriptor: int, callback: Optional[Callback]) -> None:
        """Call `callback` whenever `descriptor` can be written, or is broken; None stops watching for that."""
        self._set(self._writers, descriptor, callback)

    def _set(self, callbacks: dict[int, Callback], descriptor: int, callback: Optional[Callback]) -> None:
        if callbacks.get(descriptor) == callback:
            return
        if callback is None:
            callbacks.pop(descriptor, None)
        else:
            callbacks[descriptor] = callback
        mask = select.EPOLLIN if descriptor in self._readers else 0
        mask |= select.EPOLLOUT if descriptor in self._writers else 0
        before = self._masks.get(descriptor, 0)
        if mask == before:
            return
        self._masks[descriptor] = mask
        if not before:
            self._epoll.register(descriptor, mask)
        elif mask:
            self._epoll.modify(descriptor, mask)
        else:  # epoll would report an end again and again
            self._epoll.unregister(descriptor)
            del self._masks[descriptor]

    def set_timer(self, callback: Callback, when: float) -> None:
        """Call `callback` once at `when` (monotonic) instead of at the time that was set before."""
        self._timers[callback] = when

    def cancel_timer(self, callback: Callback) -> None:
        """Cancel the timer of `callback`."""
        self._timers.pop(callback, None)

    def run_once(self, *, waits: bool = True) -> bool:
        """Wait for a descriptor or a timer, and call the callbacks; return False if no descriptor was ready."""
        first = min(self._timers.values()) if self._timers else None
        timeout_s = -1.0 if waits else 0.0
        if waits and first is not None:
            timeout_s = max(0.0, first - time.monotonic()) + 0.001
        events = self._epoll.poll(timeout_s)
        for descriptor, mask in events:
            if mask & ~select.EPOLLIN and descriptor in self._writers:
                self._writers[descriptor]()
            if mask & ~select.EPOLLOUT and descriptor in self._readers:
                self._readers[descriptor]()
        if first is not None and time.monotonic() >= first:
            self._call_due(time.monotonic())
        return bool(events)

    def _call_due(self, now: float) -> None:
        for callback in [callback for callback, when in self._timers.items() if when <= now]:
            if self._timers.get(callback, now + 1) <= now:  # otherwise an earlier callback has postponed it
                del self._timers[callback]
                callback()


class Writer:
    """Writes to a descriptor as fast as its other end is read.

    Args:
        loop: The event loop.
        descriptor: A pipe, a terminal or a socket.
        on_written: Called after each attempt with the number of bytes written, or dropped as the reader is gone.
    """

    def __init__(self, loop: EventLoop, descriptor: int, on_written: Callable[[int], None]) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._on_written = on_written
        self.pending = bytearray()
        self.is_lost = False
        """Whether the reader is gone."""
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        """Write bytes, now or later."""
        self.pending += data
        self._flush()

    def _flush(self) -> None:
        count = 0
        try:
            if not self.is_lost:
                count = os.write(self._descriptor, self.pending)
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
        if self.is_lost:
            count = len(self.pending)
        else:
            self._loop.set_writer(self._descriptor, self._flush if len(self.pending) > count else None)
        del self.pending[:count]
        self._on_written(count)

    def _lose(self) -> None:
        """Stop using the descriptor, whose number may soon be reused."""
        if not self.is_lost:
            self.is_lost = True
            self._loop.set_writer(self._descriptor, None)

    def close(self) -> None:
        """Write no more, and drop the rest. The caller closes the descriptor."""
        self._lose()
        self._flush()


class Stream:
    """Both directions of the stream to the host.

    Args:
        loop: The event loop.
        read_fd: Frames of the host.
        write_fd: Frames to the host.
        on_frame: Called with kind, channel and payload of each frame.
        on_room: Called when the queue has room again after `is_full` was true.
        on_lost: Called when the host is gone; does not return.
    """

    def __init__(
        self,
        loop: EventLoop,
        read_fd: int,
        write_fd: int,
        on_frame: Callable[[int, int, bytes], None],
        on_room: Callable[[], None],
        on_lost: Callable[[], NoReturn],
    ) -> None:
        self._loop = loop
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._on_room = on_room
        self._on_lost = on_lost
        self._reader = frames.FrameReader(_LARGEST_FRAME, on_frame)
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._is_blocked = False
        self._was_full = False
        self.received_at = time.monotonic()
        """When the host last sent something."""
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, False)
        loop.set_reader(read_fd, self._on_readable)

    @property
    def is_full(self) -> bool:
        """Whether output of commands and connections must wait; `on_room` is called afterwards."""
        if self._queued_bytes > _QUEUE_HIGH:
            self._was_full = True
        return self._queued_bytes > _QUEUE_HIGH

    def send(self, kind: int, channel: int, payload: bytes = b"") -> None:
        """Queue a frame and write as much as the stream accepts."""
        header = frames.HEADER.pack(len(payload), channel, kind)
        self._queue += [header + payload] if len(payload) < _JOIN_BELOW else [header, payload]
        self._queued_bytes += len(header) + len(payload)
        if not self._is_blocked:
            self._flush()

    def send_failure(self, channel: int, error: OSError, stage: str = "start") -> None:
        """Report why a request on a channel failed; that is the channel's last frame."""
        fields = [("stage", stage), ("errno", error.errno or 0), ("message", error.strerror or error)]
        self.send(frames.FAIL, channel, frames.encode_record(fields))

    def drain(self) -> None:
        """Write everything that is queued, however long it takes."""
        os.set_blocking(self._write_fd, True)
        self._flush()

    def _flush(self) -> None:
        while self._queue:
            try:
                self._remove_written(os.writev(self._write_fd, self._queue[:_BATCH]))
            except BlockingIOError:
                break
            except OSError:
                self._on_lost()
        if bool(self._queue) != self._is_blocked:
            self._is_blocked = not self._is_blocked
            self._loop.set_writer(self._write_fd, self._flush if self._is_blocked else None)
        if self._was_full and self._queued_bytes < _QUEUE_LOW:
            self._was_full = False
            self._on_room()

    def _remove_written(self, written: int) -> None:
        self._queued_bytes -= written
        done = 0
        while done < len(self._queue) and written >= len(self._queue[done]):
            written -= len(self._queue[done])
            done += 1
        del self._queue[:done]
        if written:
            self._queue[0] = self._queue[0][written:]

    def _on_readable(self) -> None:
        try:
            data = os.read(self._read_fd, _READ)
        except BlockingIOError:
            return
        if not data:
            self._on_lost()
        self.received_at = time.monotonic()
        self._reader.feed(data)
