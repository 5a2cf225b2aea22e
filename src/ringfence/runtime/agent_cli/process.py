"""Runs the process of an agent CLI from its start to its end: its streams, its limits, and the signals that end it.

The length of a line, its output, and the time it may take to end are bounded. A process that it leaves behind does not
hold up the run, although it keeps the pipe open.
"""

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import anyio

from ringfence.errors import ConfigurationError, InfrastructureFault, LimitReached, SandboxFileError
from ringfence.events import Emit, Event, ToolCalled
from ringfence.grace import grace
from ringfence.runtime.agent_cli.base import Launch, Output
from ringfence.runtime.agent_cli.exit_status import Exit
from ringfence.runtime.limits import Limits
from ringfence.runtime.transcript.record import Item, Line, LineSplitter, parse
from ringfence.sandbox import ProcessEnd, Sandbox, SandboxProcess, SandboxSpec

END_SIGNALS = ((signal.SIGINT, 2.0), (signal.SIGTERM, 5.0))
"""The signals that end an agent CLI, each with the seconds it has to comply; then its whole process tree is killed."""

_STOPPED_GRACE_S = 3.0
"""The time that it has to exit by itself once its requests are refused because the run must end."""
_KILLED_S = 5.0
_STDERR_BYTES = 16 * 1024
_SANDBOX_LIMITS = ("memory", "pids", "disk")


@dataclass
class Bounds:
    """The limits of an agent CLI."""

    wait_stopped: Callable[[], Awaitable[object]]
    """Returns when the run must end for a reason that is reported elsewhere."""
    limits: Limits = field(default_factory=Limits)
    idle_timeout_s: float | None = None
    """The longest silence on stdout and stderr."""
    output_bytes: int = 256 * 1024**2
    output_lines: int = 1_000_000


class CliProcess:
    """One process of an agent CLI. Use once.

    Args:
        output: Reads its stdout.
        launch: How it is started.
        bounds: The limits on its resources.
        emit: Records an event.
    """

    def __init__(self, output: Output, launch: Launch, bounds: Bounds, emit: Emit) -> None:
        self.tool_calls = 0
        """How many tool calls its output reported."""
        self._output = output
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
        self._must_end = anyio.Event()
        self._error: Exception | None = None
        self._end: ProcessEnd | None = None
        self._spec: SandboxSpec | None = None

    async def run(self, sandbox: Sandbox) -> None:
        """Start it and wait for its end; then `exit` is set.

        When this is cancelled, the process is first terminated in order, and `exit` is set, too.

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
                    self._must_end.set()
                    raise
        if self._error is not None:
            raise self._error

    async def _follow(self, process: SandboxProcess, is_over: anyio.Event) -> None:
        """Follow the process, and keep an error for `run`. Shielded, as the sequence of signals always ends it."""
        with grace():
            try:
                async with anyio.create_task_group() as tasks:
                    for duty in (self._feed, self._read_stderr, self._terminate):
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

    async def _read_stderr(self, process: SandboxProcess) -> None:
        async for chunk in process.stderr:
            self._reset_silence()
            self._stderr = (self._stderr + chunk)[-_STDERR_BYTES:]

    async def _read(self, process: SandboxProcess) -> None:
        async for chunk in process.stdout:
            self._reset_silence()
            self._bytes += len(chunk)
            if self._is_flooded():
                continue
            for line in self._lines.feed(chunk):
                await self._take(line, parse(line))
        rest = self._lines.rest()
        if rest is not None:
            await self._take(rest, parse(rest))
        await self._record(self._output.end())

    async def _take(self, line: Line, items: Sequence[Item]) -> None:
        await self._record(self._output.take(line, items))

    def _is_flooded(self) -> bool:
        """Return whether the output exceeds its limits; further output is dropped."""
        for name, used, allowed in (
            ("output_bytes", self._bytes, self._bounds.output_bytes),
            ("output_lines", self._lines.number - 1, self._bounds.output_lines),
        ):
            if used > allowed:
                self._reach(LimitReached(name, allowed=allowed, used=used))
                return True
        return False

    async def _record(self, events: list[Event]) -> None:
        for event in events:
            await self._emit(event)
            if isinstance(event, ToolCalled):
                self._count_tool_call()

    def _count_tool_call(self) -> None:
        self.tool_calls += 1
        allowed = self._bounds.limits.tool_calls
        if allowed is not None and self.tool_calls > allowed:
            self._reach(LimitReached("tool_calls", allowed=allowed, used=self.tool_calls))

    # --- its end

    def _reach(self, limit: LimitReached) -> None:
        self._limit = self._limit or limit
        self._must_end.set()

    def _reset_silence(self) -> None:
        if self._bounds.idle_timeout_s is not None:
            self._silence.deadline = anyio.current_time() + self._bounds.idle_timeout_s

    async def _watch_silence(self) -> None:
        self._reset_silence()
        with self._silence:
            await anyio.sleep_forever()
        self._silent_s = self._bounds.idle_timeout_s
        self._must_end.set()

    async def _watch_stopped(self) -> None:
        await self._bounds.wait_stopped()
        await anyio.sleep(_STOPPED_GRACE_S)
        self._must_end.set()

    async def _terminate(self, process: SandboxProcess) -> None:
        """Send the signals of `END_SIGNALS` once the process must end. Cancelled when it has ended."""
        await self._must_end.wait()
        for number, grace_s in END_SIGNALS:
            self._signals.append(number)
            await process.signal(number)
            await anyio.sleep(grace_s)
        self._signals.append(signal.SIGKILL)
        await process.kill()
        await anyio.sleep(_KILLED_S)
        raise InfrastructureFault("the agent CLI's processes could not be killed in time; try again")

    @property
    def duration_ms(self) -> float:
        """How long it ran, by the sandbox's clock."""
        return round(self._end.duration_s * 1000, 3) if self._end is not None else 0.0

    @property
    def exit(self) -> Exit | None:
        """How it ended, as seen from outside; None if that is unknown (yet)."""
        end, limit = self._end, self._limit
        if end is None:
            return None
        if end.ended_by in _SANDBOX_LIMITS:
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
        return ConfigurationError(f"the agent CLI cannot be started inside: {error}")
    assert isinstance(error, Exception)
    return error
