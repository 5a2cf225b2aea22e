"""A command running in a sandbox, as a handle: streams in and out, signals, its end."""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio

from ringfence.errors import SandboxFileError, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.channels.command import Channel
from ringfence.sandbox.protocol.records import Exit, Failure, errno_name
from ringfence.sandbox.result import EndedBy

WINDOW = 1024 * 1024
"""Bytes of a command's output that may wait on the host unread."""
_JOIN_BELOW = 4096
_HIGHEST_SIGNAL = 64
_LARGEST_SIDE = 65_535


Blame = Callable[[EndedBy, int], Awaitable[EndedBy]]
"""Who ended a command, by more than its guest could see of it (`GuestSession.blame`)."""


@frozen
class ProcessEnd:
    """How a command ended; fields as in `ExecResult`."""

    exit_code: int
    signal: int | None
    ended_by: EndedBy
    duration_s: float


class OutputStream:
    """A command's stdout or stderr: an async iterator of bytes. What is not read makes the command wait."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._chunks: deque[bytes | bytearray] = deque()
        self._changed = anyio.Event()
        self._is_over = False
        self._channel: Channel | None = None

    def attach(self, channel: Channel) -> None:
        """Say whom to grant credit."""
        self._channel = channel

    def feed(self, chunk: bytes) -> None:
        """The next bytes came."""
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, bytearray) and len(last) < _JOIN_BELOW:
            last += chunk
        else:
            # Small ones are joined: a window full of single bytes would weigh fifty times its size.
            self._chunks.append(bytearray(chunk) if len(chunk) < _JOIN_BELOW else chunk)
        self._changed.set()

    def finish(self) -> None:
        """No more bytes will come."""
        self._is_over = True
        self._changed.set()

    def __aiter__(self) -> "OutputStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._is_over:
                if self._channel is not None and self._channel.error is not None:
                    raise self._channel.error
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        chunk = bytes(self._chunks.popleft())
        if self._channel is not None:
            self._channel.consumed(self._kind, len(chunk))
        return chunk


class InputStream:
    """A command's stdin."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._is_closed = False

    async def send(self, data: bytes) -> None:
        """Send bytes, waiting while the command does not read; what an ended command did not read is lost."""
        if self._is_closed:
            raise UsageError("stdin of this process is closed already")
        await self._channel.send_stdin(data)

    async def aclose(self) -> None:
        """Tell the command that nothing more comes."""
        if not self._is_closed:
            self._is_closed = True
            self._channel.post(frames.STDIN_END)


class SandboxProcess:
    """A running command. Made by `Sandbox.spawn`; leaving its context kills what is left of it.

    Attributes:
        argv: The program and its arguments.
        stdin: Send it input by `send`, and end its input by `aclose`.
        stdout: Its output, an async iterator of bytes. What is not read makes the command wait.
        stderr: Its messages, likewise. Empty on a terminal, where everything comes by `stdout`.
    """

    def __init__(self, argv: tuple[str, ...], *, has_tty: bool = False, blame: Blame | None = None) -> None:
        self.argv = argv
        self._has_tty = has_tty
        self._blame = blame
        self._end: ProcessEnd | None = None
        self.stdout = OutputStream(frames.STDOUT)
        self.stderr = OutputStream(frames.STDERR)
        self.stdin: InputStream

    def attach(self, channel: Channel) -> None:
        """Bind to the channel that was opened with `on_output` as its sink."""
        self._channel = channel
        self.stdin = InputStream(channel)
        self.stdout.attach(channel)
        self.stderr.attach(channel)
        channel.on_end = self._on_end

    def on_output(self, kind: int, chunk: bytes) -> None:
        """Sink of the channel."""
        (self.stdout if kind == frames.STDOUT else self.stderr).feed(chunk)

    def _on_end(self) -> None:
        self.stdout.finish()
        self.stderr.finish()

    async def wait(self) -> ProcessEnd:
        """Wait for the end. Read the output meanwhile: a command whose output is not read waits for ever.

        Raises:
            SandboxDied: The sandbox went first.
            SandboxFileError: The command could not be started.
        """
        end = await self._channel.wait()
        if isinstance(end, Failure):
            raise SandboxFileError(
                f"could not start {self.argv[0]!r}: {end.message}",
                path=self.argv[0],
                errno_name=errno_name(end),
            )
        if self._end is None:
            told = process_end(end)
            if self._blame is not None:
                told = replace(told, ended_by=await self._blame(told.ended_by, told.exit_code))
            self._end = self._end or told
        return self._end

    async def signal(self, number: int) -> None:
        """Send a signal to the command's process group.

        Raises:
            UsageError: There is no signal of this number.
        """
        if not 1 <= number <= _HIGHEST_SIGNAL:
            raise UsageError(f"there is no signal {number!r}; they are numbered from 1 to {_HIGHEST_SIGNAL}")
        self._channel.post(frames.SIGNAL, frames.U32.pack(int(number)))

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the terminal's new size.

        Raises:
            UsageError: The command has no terminal, or no terminal has that size.
        """
        if not self._has_tty:
            raise UsageError(f"{self.argv[0]!r} was not started on a terminal; give `tty` to `spawn`")
        check_size(rows, columns)
        self._channel.post(frames.RESIZE, frames.SIZE.pack(rows, columns))

    async def kill(self) -> None:
        """Kill the command with everything it started."""
        self._channel.post(frames.KILL)


def check_size(rows: int, columns: int) -> None:
    """Refuse what is no size of a terminal.

    Raises:
        UsageError: A side is below 1 or above 65535.
    """
    if not (1 <= rows <= _LARGEST_SIDE and 1 <= columns <= _LARGEST_SIDE):
        raise UsageError(
            f"a terminal has from 1 to {_LARGEST_SIDE} rows and columns, not {rows!r}, {columns!r}"
        )


def process_end(end: Exit) -> ProcessEnd:
    """The public form of an EXIT frame."""
    return ProcessEnd(end.exit_code, end.signal, end.ended_by, end.duration_s)  # type: ignore[arg-type]  # checked
