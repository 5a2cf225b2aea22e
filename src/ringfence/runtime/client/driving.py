"""A client's process from its start to its end: fed, read line by line, and brought down when it has to be.

Whatever it does, it is bounded: a line, all of its output, how long it may take to end when it is told to. A process
that it leaves behind does not hold the run, though it holds the pipe.
"""

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from ringfence.errors import ConfigurationError, InfrastructureFault, LimitReached, SandboxFileError
from ringfence.events import Event, ToolCalled
from ringfence.grace import grace
from ringfence.runtime.base import Emit
from ringfence.runtime.client.base import Launch, Stream
from ringfence.runtime.client.ending import Exit
from ringfence.runtime.limits import Limits
from ringfence.runtime.transcript.lines import Line, LineSplitter
from ringfence.sandbox import ProcessEnd, Sandbox, SandboxProcess, SandboxSpec

LADDER = ((signal.SIGINT, 2.0), (signal.SIGTERM, 5.0))
"""What a client is told to end by, and how many seconds it then has; after the last, its whole tree is killed."""

_KILLED_S = 5.0
_STDERR_BYTES = 16 * 1024
_BOUNDS_OF_SANDBOX = ("memory", "pids", "disk")


@dataclass
class Counted:
    """The calls of tools that a client tells of."""

    limits: Limits
    tool_calls: int = 0

    def take(self, event: Event) -> LimitReached | None:
        """Count an event; the limit that is passed by it."""
        if not isinstance(event, ToolCalled):
            return None
        self.tool_calls += 1
        allowed = self.limits.tool_calls
        if allowed is None or self.tool_calls <= allowed:
            return None
        return LimitReached("tool_calls", allowed=allowed, used=self.tool_calls)


@dataclass
class Bounds:
    """What a client may use, and what ends it from outside."""

    limits: Limits = field(default_factory=Limits)
    idle_timeout_s: float | None = None
    """The longest that it may be silent, on stdout and stderr."""
    stopped: Callable[[], Awaitable[Exception]] | None = None
    """Returns when the run is to end for a reason that somebody else will tell."""
    stopped_grace_s: float = 3.0
    """Then it has so long to end by itself, as it was refused what it needs."""
    output_bytes: int = 256 * 1024**2
    """Of its stdout."""
    output_lines: int = 1_000_000


class Drive:
    """One process of a client. Use once.

    Args:
        stream: Reads its output.
        launch: How it is started.
        bounds: What it may use.
        emit: Records an event.
    """

    def __init__(self, stream: Stream, launch: Launch, bounds: Bounds, emit: Emit) -> None:
        self.counted = Counted(bounds.limits)
        self._stream = stream
        self._launch = launch
        self._bounds = bounds
        self._emit = emit
        self._lines = LineSplitter()
        self._bytes = 0
        self._stderr = b""
        self._silence = anyio.CancelScope()
        self._limit: LimitReached | None = None
        self._silent_s: float | None = None
        self._signals: list[signal.Signals] = []
        self._is_to_end = anyio.Event()
        self._error: Exception | None = None
        self._end: ProcessEnd | None = None
        self._spec: SandboxSpec | None = None

    async def run(self, sandbox: Sandbox) -> None:
        """Start it and follow it to its end, which is in `exit` then.

        When this is cancelled, it is brought down in order first, and has its `exit` too.

        Raises:
            ConfigurationError: It could not be started.
            SandboxDied: The sandbox is gone.
        """
        self._spec = sandbox.spec
        async with sandbox.spawn(self._launch.argv, env=self._launch.env) as process:
            is_over = anyio.Event()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow, process, is_over)
                try:
                    await is_over.wait()
                except anyio.get_cancelled_exc_class():
                    self._is_to_end.set()
                    raise
        if self._error is not None:
            raise self._error

    async def _follow(self, process: SandboxProcess, is_over: anyio.Event) -> None:
        """Everything about a process; what goes wrong is kept. Ends by itself after the ladder, so it is shielded."""
        with grace():
            try:
                async with anyio.create_task_group() as tasks:
                    for duty in (self._feed, self._keep_stderr, self._bring_down):
                        tasks.start_soon(duty, process)
                    for watch in (self._watch_silence, self._watch_stopped):
                        tasks.start_soon(watch)
                    await self._read(process)
                    self._end = await process.wait()
                    tasks.cancel_scope.cancel()
            except Exception as exc:  # noqa: BLE001 -- raised by `run`, outside of the groups' wrapping
                self._error = _unwrapped(exc)
        is_over.set()

    # --- its streams

    async def _feed(self, process: SandboxProcess) -> None:
        if self._launch.stdin:
            await process.stdin.send(self._launch.stdin)
        await process.stdin.aclose()

    async def _keep_stderr(self, process: SandboxProcess) -> None:
        async for chunk in process.stderr:
            self._hear()
            self._stderr = (self._stderr + chunk)[-_STDERR_BYTES:]

    async def _read(self, process: SandboxProcess) -> None:
        async for chunk in process.stdout:
            self._hear()
            self._bytes += len(chunk)
            if self._is_flooded():
                continue
            for line in self._lines.feed(chunk):
                await self._take(line)
        rest = self._lines.rest()
        if rest is not None:
            await self._take(rest)
        await self._tell(self._stream.flush())

    async def _take(self, line: Line) -> None:
        await self._tell(self._stream.take(line))

    def _is_flooded(self) -> bool:
        """Whether it said more than anybody wants to keep; the rest is thrown away."""
        for name, used, allowed in (
            ("output_bytes", self._bytes, self._bounds.output_bytes),
            ("output_lines", self._lines.number - 1, self._bounds.output_lines),
        ):
            if used > allowed:
                self._reach(LimitReached(name, allowed=allowed, used=used))
                return True
        return False

    async def _tell(self, events: list[Event]) -> None:
        for event in events:
            await self._emit(event)
            limit = self.counted.take(event)
            if limit is not None:
                self._reach(limit)

    # --- its end

    def _reach(self, limit: LimitReached) -> None:
        self._limit = self._limit or limit
        self._is_to_end.set()

    def _hear(self) -> None:
        if self._bounds.idle_timeout_s is not None:
            self._silence.deadline = anyio.current_time() + self._bounds.idle_timeout_s

    async def _watch_silence(self) -> None:
        self._hear()
        with self._silence:
            await anyio.sleep_forever()
        self._silent_s = self._bounds.idle_timeout_s
        self._is_to_end.set()

    async def _watch_stopped(self) -> None:
        if self._bounds.stopped is None:
            return
        await self._bounds.stopped()
        await anyio.sleep(self._bounds.stopped_grace_s)
        self._is_to_end.set()

    async def _bring_down(self, process: SandboxProcess) -> None:
        """When it is to end: ask, ask again, kill. Whoever waits for its end cancels this."""
        await self._is_to_end.wait()
        for number, patience_s in LADDER:
            self._signals.append(number)
            await process.signal(number)
            await anyio.sleep(patience_s)
        self._signals.append(signal.SIGKILL)
        await process.kill()
        await anyio.sleep(_KILLED_S)
        raise InfrastructureFault("the client's processes could not be killed in time; try again")

    @property
    def duration_ms(self) -> float:
        """How long it ran, as its sandbox says."""
        return round(self._end.duration_s * 1000, 3) if self._end is not None else 0.0

    @property
    def exit(self) -> Exit | None:
        """How it ended, as seen from outside; None if that is not known (yet)."""
        end, limit = self._end, self._limit
        if end is None:
            return None
        if end.ended_by in _BOUNDS_OF_SANDBOX:
            allowed = getattr(self._spec, end.ended_by)
            limit = limit or LimitReached(end.ended_by, allowed=allowed, used=allowed)
        return Exit(
            code=-end.signal if end.signal else end.exit_code,
            stderr=self._stderr.decode("utf-8", "replace"),
            signals=tuple(self._signals),
            limit=limit,
            silent_s=self._silent_s,
        )


def _unwrapped(error: BaseException) -> Exception:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, SandboxFileError):
        return ConfigurationError(f"the client cannot be started inside: {error}")
    assert isinstance(error, Exception)
    return error
