"""Handles commands in a sandbox: a command's channel, its handle, and the requests that the gate refused meanwhile.

The guest sends output as the host grants credit, the host sends stdin as the guest grants it, and one frame ends both.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from ringfence.errors import SandboxFileError, UsageError
from ringfence.frozen import frozen
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.link import GuestLink
from ringfence.sandbox.protocol.records import (
    Exit,
    Failure,
    ProtocolError,
    Refusal,
    decode_refusals,
    parse_record,
)
from ringfence.sandbox.protocol.stream import ByteQueue, Wakeup
from ringfence.sandbox.result import EndedBy

WINDOW = 1024 * 1024
"""Bytes of a command's output that may wait on the host unread."""
_HIGHEST_SIGNAL = 64
_LARGEST_SIDE = 65_535
_MOST_REFUSALS = 20


def _drop(_kind: int, _chunk: bytes) -> None:
    """Ignore output that is not wanted; its credit is not renewed, which bounds what a hostile guest can send."""


class Channel:
    """One command's frames. `end` is set by the guest's last frame, `error` when the sandbox died first.

    Args:
        link: Where the channel is opened.
        record: The fields of its OPEN record except the window.
        window: Bytes of each output that may be in transit.

    Raises:
        SandboxDied: The sandbox is gone.
    """

    def __init__(self, link: GuestLink, record: bytes, *, window: int) -> None:
        self.end: Exit | Failure | None = None
        self.error: BaseException | None = None
        self.sink: Callable[[int, bytes], None] = _drop
        """Called with (frames.STDOUT or frames.STDERR, bytes) as they arrive; must not block."""
        self.on_credit: Callable[[int], None] | None = None
        """Called with the number of further bytes of stdin that the guest accepts."""
        self.on_refused: Callable[[str, str | None], None] | None = None
        """Called with the refusals that the last frame reports; None: the report is not trusted."""
        self._link = link
        self._granted = {frames.STDOUT: window, frames.STDERR: window}
        self._owed = {frames.STDOUT: 0, frames.STDERR: 0}
        self._batch = window // 2
        self._stdin_credit = frames.STDIN_WINDOW
        self._changed = Wakeup()
        self._number = link.open(self)
        link.post(frames.OPEN, self._number, record + frames.encode_record([("window", window)]))

    @property
    def is_over(self) -> bool:
        """Whether the guest's last frame has arrived."""
        return self.end is not None

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Handle a frame of the guest for this channel."""
        if kind in self._granted:
            self._granted[kind] -= len(payload)
            # Empty frames cost no credit, so a flood of them would use memory without bound.
            if self._granted[kind] < 0 or not payload:
                raise ProtocolError("sent more output than was granted, or none in a frame for it")
            self.sink(kind, payload)
        elif kind == frames.CREDIT_IN and len(payload) == frames.U32.size:
            credit = min(frames.U32.unpack(payload)[0], frames.STDIN_WINDOW - self._stdin_credit)
            self._stdin_credit += credit
            # A frame without credit costs the guest nothing, and forwarding a flood of them would fill a client's queue.
            if credit and self.on_credit is not None:
                self.on_credit(credit)
        elif kind == frames.EXIT:
            self.end = parse_record(payload, Exit)
            if self.on_refused is not None and self.end.refused:
                for refusal in decode_refusals(self.end.refused):
                    self.on_refused(*refusal)
        elif kind == frames.FAIL:
            self.end = parse_record(payload, Failure)
        else:
            raise ProtocolError(f"sent frame kind {kind} on a command's channel")
        self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Handle that the sandbox is gone."""
        self.error = error
        self._changed.notify_all()

    def consumed(self, kind: int, count: int) -> None:
        """Note that the consumer took `count` bytes, and grant as many again, in batches."""
        self._owed[kind] += count
        if self._owed[kind] >= self._batch and self.end is None:
            owed, self._owed[kind] = self._owed[kind], 0
            self._granted[kind] += owed
            credit = frames.CREDIT_OUT if kind == frames.STDOUT else frames.CREDIT_ERR
            self._link.post(credit, self._number, frames.U32.pack(owed))

    async def wait_for_change(self) -> None:
        """Wait for output, credit or the end.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        if self.error is not None:
            raise self.error
        await self._changed.wait()

    async def wait(self) -> Exit | Failure:
        """Wait for the end.

        Raises:
            SandboxDied: The sandbox went first.
        """
        while self.end is None:
            await self.wait_for_change()
        return self.end

    async def send_stdin(self, data: bytes) -> None:
        """Send input as the guest grants credit. Input that a command does not read before its end is lost.

        Raises:
            UsageError: `data` is not bytes.
            SandboxDied: The sandbox went first.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"input and files are bytes, not {data!r}; `encode()` makes bytes of text")
        view = memoryview(bytes(data))
        while view and self.end is None:
            if self._stdin_credit == 0 or self.error is not None:
                await self.wait_for_change()
                continue
            piece = view[: min(self._stdin_credit, frames.MAX_PAYLOAD)]
            self.post_stdin(piece)
            view = view[len(piece) :]

    def post_stdin(self, piece: bytes | memoryview) -> bool:
        """Send a piece of stdin at once; return False if it is more than the guest has granted."""
        if len(piece) > self._stdin_credit:
            return False
        self._stdin_credit -= len(piece)
        self.post(frames.STDIN, piece)
        return True

    def post(self, kind: int, payload: bytes | memoryview = b"") -> None:
        """Send a frame on this channel, unless it is over."""
        if self.end is None and self.error is None:
            self._link.post(kind, self._number, payload)


FindCause = Callable[[Exit], Awaitable[EndedBy]]
"""Finds the cause of a command's end, with information that its guest does not have (`GuestSession.find_cause`)."""


@frozen
class ProcessEnd:
    """How a command ended; fields as in `ExecResult`."""

    exit_code: int
    signal: int | None
    ended_by: EndedBy
    duration_s: float


class OutputStream:
    """A command's stdout or stderr: an async iterator of bytes. Unread output makes the command wait."""

    def __init__(self, channel: Channel, kind: int) -> None:
        self._channel = channel
        self._kind = kind
        self._unread = ByteQueue()

    def feed(self, chunk: bytes) -> None:
        """Add the bytes that arrived next."""
        self._unread.append(chunk)

    def __aiter__(self) -> "OutputStream":
        return self

    async def __anext__(self) -> bytes:
        while not self._unread:
            if self._channel.end is not None:
                raise StopAsyncIteration
            await self._channel.wait_for_change()
        chunk = self._unread.pop(WINDOW)
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
        """End the command's input."""
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

    def __init__(
        self,
        argv: tuple[str, ...],
        channel: Channel,
        *,
        has_tty: bool = False,
        find_cause: FindCause | None = None,
    ) -> None:
        self.argv = argv
        self.stdin = InputStream(channel)
        self.stdout = OutputStream(channel, frames.STDOUT)
        self.stderr = OutputStream(channel, frames.STDERR)
        channel.sink = self._on_output
        self._channel = channel
        self._has_tty = has_tty
        self._find_cause = find_cause
        self._end: ProcessEnd | None = None

    def _on_output(self, kind: int, chunk: bytes) -> None:
        (self.stdout if kind == frames.STDOUT else self.stderr).feed(chunk)

    async def wait(self) -> ProcessEnd:
        """Wait for the end. Read the output meanwhile, as a command whose output is not read waits forever.

        Raises:
            SandboxDied: The sandbox went first.
            SandboxFileError: The command could not be started.
        """
        end = await self._channel.wait()
        if isinstance(end, Failure):
            raise SandboxFileError(
                f"could not start {self.argv[0]!r}: {end.message}",
                path=self.argv[0],
                errno_name=end.errno_name,
            )
        if self._end is None:
            cause = end.ended_by if self._find_cause is None else await self._find_cause(end)
            self._end = self._end or ProcessEnd(end.exit_code, end.signal or None, cause, end.duration_s)
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
        """Announce the terminal's new size.

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
    """Check the size of a terminal.

    Raises:
        UsageError: A side is below 1 or above 65535.
    """
    if not (1 <= rows <= _LARGEST_SIDE and 1 <= columns <= _LARGEST_SIDE):
        raise UsageError(
            f"a terminal has from 1 to {_LARGEST_SIDE} rows and columns, not {rows!r}, {columns!r}"
        )


class Refusals:
    """Lines on requests that the gate refused while commands ran, as many programs do not say why they failed.

    A line is reported for all commands that run at the time, as it cannot be assigned to one.
    """

    def __init__(self) -> None:
        self._watching: list[dict[Refusal, None]] = []

    def add(self, line: str, grant: str | None = None) -> None:
        """Add a line for each running command."""
        for lines in self._watching:
            if len(lines) < _MOST_REFUSALS:
                lines[Refusal(line, grant)] = None

    @contextmanager
    def watched(self) -> Iterator[dict[Refusal, None]]:
        """Collect the lines until the context is left: each once, in order, at most 20."""
        lines: dict[Refusal, None] = {}
        self._watching.append(lines)
        try:
            yield lines
        finally:
            self._watching[:] = [others for others in self._watching if others is not lines]
