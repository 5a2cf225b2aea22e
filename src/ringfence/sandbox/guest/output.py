"""What a command writes, on its way to the host: as much as was granted, and all of it before the end."""

from __future__ import annotations

import fcntl
import posix as os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from .loop import Loop
    from .stream import Stream

    class Owner(Protocol):
        """Who waits and sends for it."""

        loop: Loop
        stream: Stream

    class Command(Protocol):
        """Whose output it is."""

        @property
        def owner(self) -> Owner:
            """Who waits and sends for it."""

        def settle(self) -> None:
            """The output may be over."""


_READ = 256 * 1024
_FIONREAD = 0x541B


class Output:
    """The reading end of a command's stdout or stderr."""

    def __init__(self, command: Command, descriptor: int, *, channel: int, kind: int, credit: int) -> None:
        self._command = command
        self._loop = command.owner.loop
        self._stream = command.owner.stream
        self._channel = channel
        self.descriptor = descriptor
        self._kind = kind
        self.credit = credit
        self.left: int | None = None
        """After the command's exit: bytes still to be sent. What stragglers write later is dropped."""
        self.is_done = False
        os.set_blocking(descriptor, False)
        self._armed = False
        self.arm()

    def arm(self) -> None:
        """Listen, if there is something to wait for and room to send it."""
        has_room = self.is_done or (self.credit > 0 and not self._stream.is_full)
        wanted = self.descriptor >= 0 and has_room
        if wanted and not self._armed:
            self._loop.listen(self.descriptor, self.on_ready)
        elif self._armed and not wanted:
            self._loop.ignore(self.descriptor)
        self._armed = wanted

    def on_ready(self, _mask: int) -> None:
        """Read once: other channels get their turn before the next read."""
        room = _READ if self.is_done else min(_READ, self.credit)
        if self.left is not None and not self.is_done:
            room = min(room, self.left)
        try:
            data = os.read(self.descriptor, room)
        except BlockingIOError:
            return
        except OSError:  # EIO: the last process with the terminal open is gone
            data = b""
        if not data:
            self.close()
        elif not self.is_done:
            self.credit -= len(data)
            if self.left is not None:
                self.left -= len(data)
            self._stream.send(self._kind, self._channel, data)
        self._settle()

    def drop(self) -> None:
        """Nobody wants the rest: read it and throw it away, so that the end need not wait for credit."""
        if not self.is_done:
            self.left = 0
            self._settle()

    def on_exit(self) -> None:
        """The command is over: what is in the pipe now is the last of its output."""
        if not self.is_done:
            try:
                self.left = int.from_bytes(fcntl.ioctl(self.descriptor, _FIONREAD, bytes(4)), sys.byteorder)
            except OSError:
                self.left = 0
            self._settle()

    def _settle(self) -> None:
        if self.left is not None and self.left <= 0:
            self.is_done = True
        self.arm()
        self._command.settle()

    def close(self) -> None:
        """The other end is closed everywhere."""
        if self.descriptor >= 0:
            self._loop.ignore(self.descriptor)
            self._armed = False
            os.close(self.descriptor)
            self.descriptor = -1
        self.is_done = True
