"""One sandbox of a client: a recorded run that lasts until it is closed, idle for too long, or at its time limit.

Each call is in the record before it acts, and its result is there before the client has it. The run ends when no call
is under way any more, so that the record of each call is complete.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from ringfence.config.units import format_duration
from ringfence.errors import LimitReached, RingfenceError, SandboxDied, UsageError
from ringfence.escape import safe_json
from ringfence.events import Emit, ToolCalled, ToolReturned
from ringfence.integrations.mcp.process import ClientProcess
from ringfence.job.command import command_ended, text_of
from ringfence.job.outcome import Outcome, RunResult
from ringfence.job.run import JobRun
from ringfence.job.state import JobState
from ringfence.sandbox import ProcessEnd, Sandbox

Act = Callable[[], Awaitable[dict[str, Any]]]
_RECORD_S = 10.0
_KILLED = ProcessEnd(137, 9, "cancel", 0.0)
"""The end of a process that its sandbox's end killed."""
_MAX_CALLS = 32
"""Calls under way at once in one sandbox."""


class ClientSandbox:
    """A sandbox that a client opened; after its end, the result of its run.

    Args:
        handle: By which its client names it.
        owner: The session that may use it.
        workspace: The directory it works on.
        idle_s: It is closed after this time without a call.
        max_processes: How many processes may run in it at once.
        max_record_bytes: How much of its calls and processes is recorded; then it ends.
    """

    def __init__(
        self,
        handle: str,
        owner: str,
        workspace: Path,
        *,
        idle_s: float,
        max_processes: int,
        max_record_bytes: int,
    ) -> None:
        self.handle = handle
        self.owner = owner
        self.workspace = workspace
        self.job: JobRun | None = None
        self.result: RunResult | None = None
        self.failure: RingfenceError | None = None
        """Why its run could not begin."""
        self.ready = anyio.Event()
        """Set when it is open, or has ended."""
        self.over = anyio.Event()
        """Set when its run has ended and its record is sealed."""
        self.processes: dict[str, ClientProcess] = {}
        self.compared: str | None = None
        """The snapshot that the last `changes_diff` began with, of which it returns further pages."""
        self.snapshots: dict[str, str] = {}
        """Ids of the snapshots that the client took, by name."""
        self._idle_s = idle_s
        self._max_processes = max_processes
        self._max_record_bytes = max_record_bytes
        self._record_bytes = 0
        self._sandbox: Sandbox | None = None
        self._emit: Emit | None = None
        self._tasks: TaskGroup | None = None
        self._calls: set[anyio.CancelScope] = set()
        self._writers = 0
        self._is_quiet = False
        self._numbers = 0
        self._last_used = time.monotonic()
        self._closing = anyio.Event()
        self._close_reason = ""

    # --- opening and closing

    async def hold(self, sandbox: Sandbox, emit: Emit) -> Outcome:
        """Keep the sandbox open until it is closed: the work of its run.

        Raises:
            SandboxDied: It ended by itself.
            LimitReached: Its record is full.
        """
        self._sandbox, self._emit = sandbox, emit
        self._last_used = time.monotonic()
        died: BaseException | None = None

        async def watch_sandbox() -> None:
            nonlocal died
            died = await sandbox.session.link.death()
            self.close("it died")

        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(watch_sandbox)
                tasks.start_soon(self._watch_idleness)
                self.ready.set()
                await self._closing.wait()
                tasks.cancel_scope.cancel()
        finally:
            self.close("its time limit was reached, or it was stopped")
            with anyio.move_on_after(_RECORD_S, shield=True):
                await self._end_calls()
            self._tasks = None
        if isinstance(died, SandboxDied):
            raise died
        if self._record_bytes > self._max_record_bytes:
            raise LimitReached("record", allowed=self._max_record_bytes, used=self._record_bytes)
        return Outcome(JobState.UNVERIFIED, self._close_reason)

    async def _watch_idleness(self) -> None:
        while True:
            left_s = self._idle_s if self._calls else self._last_used + self._idle_s - time.monotonic()
            if left_s <= 0:
                self.close(f"no call used it for {format_duration(self._idle_s)}")
                return
            await anyio.sleep(left_s)

    def _count_record(self, size: int) -> None:
        """Count what is recorded, and close the sandbox once that is too much: a client decides how much it sends."""
        self._record_bytes += size
        if self._record_bytes > self._max_record_bytes:
            self.close("its record is full")

    async def _end_calls(self) -> None:
        """Cancel the calls under way, and wait until each has recorded its end."""
        while self._calls:
            for scope in self._calls:
                scope.cancel()
            await anyio.sleep(0.01)

    def close(self, reason: str) -> None:
        """Request the end of the run; the first reason is kept. A run without an open sandbox is cancelled."""
        if not self._closing.is_set():
            self._close_reason = reason
            self._closing.set()
        if self._sandbox is None and self.job is not None and self.result is None:
            self.job.cancel(reason)

    def finish(self, result: RunResult | None, failure: RingfenceError | None = None) -> None:
        """Store the result of the run, which has ended, and wake all that wait for it."""
        self.result, self.failure = result, failure
        self.close("its run has ended")
        self._sandbox = self._emit = None
        self.ready.set()
        self.over.set()

    @property
    def is_open(self) -> bool:
        """Whether calls are possible."""
        return self._sandbox is not None and not self._closing.is_set()

    @property
    def end_reason(self) -> str:
        """Why it ended, in one line."""
        if self.failure is not None:
            return str(self.failure)
        return self.result.reason if self.result is not None else self._close_reason

    @property
    def sandbox(self) -> Sandbox:
        """The open sandbox.

        Raises:
            UsageError: It has ended.
        """
        if self._sandbox is None or self._closing.is_set():
            raise UsageError(f"sandbox {self.handle!r} has ended: {self.end_reason}; open another one")
        return self._sandbox

    # --- calls

    async def call(self, tool: str, arguments: dict[str, Any], act: Act) -> dict[str, Any]:
        """Do something in the open sandbox, with the call and its result in the record.

        Raises:
            UsageError: It has ended, or ends meanwhile; or too many calls are under way.
            RingfenceError: `act` raised it.
        """
        _ = self.sandbox
        assert self._emit is not None
        if len(self._calls) >= _MAX_CALLS:
            raise UsageError(
                f"{_MAX_CALLS} calls are under way in sandbox {self.handle!r}; wait for one to end"
            )
        self._numbers += 1
        call_id, emit, began = f"call-{self._numbers}", self._emit, time.monotonic()
        scope = anyio.CancelScope()
        self._calls.add(scope)
        content, is_error, result = "the call was cancelled", True, None
        try:
            self._count_record(len(safe_json(arguments)))
            await emit(ToolCalled(call_id=call_id, tool=tool, arguments=arguments))
            try:
                with scope:
                    result = await act()
                    content, is_error = safe_json(result), False
            except RingfenceError as exc:
                content = str(exc)
                raise
            finally:
                with anyio.CancelScope(shield=True):
                    duration_ms = round((time.monotonic() - began) * 1000, 3)
                    self._count_record(len(content))
                    await emit(
                        ToolReturned(
                            call_id=call_id,
                            tool=tool,
                            is_error=is_error,
                            content=content,
                            duration_ms=duration_ms,
                        )
                    )
        finally:
            self._calls.discard(scope)
            self._last_used = time.monotonic()
        if result is None:
            raise UsageError(f"sandbox {self.handle!r} ended during the call: {self.end_reason}")
        return result

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Sandbox]:
        """The sandbox, for a call that may write files: not while a snapshot is taken or restored.

        Raises:
            UsageError: A snapshot is being taken or restored.
        """
        if self._is_quiet:
            raise UsageError(
                "a snapshot of this sandbox is being taken or restored; try again when it has ended"
            )
        self._writers += 1
        try:
            yield self.sandbox
        finally:
            self._writers -= 1

    @asynccontextmanager
    async def quiet(self) -> AsyncIterator[Sandbox]:
        """The sandbox while no call and no process of the client may write files.

        Raises:
            UsageError: A call or a process that may write is under way.
        """
        running = [process.handle for process in self.processes.values() if not process.is_over]
        if self._is_quiet or self._writers or running:
            busy = f"process {running[0]!r} runs" if running else "another call is under way"
            raise UsageError(
                f"{busy}, which may write files meanwhile; stop it or wait for its end, then try again"
            )
        self._is_quiet = True
        try:
            yield self.sandbox
        finally:
            self._is_quiet = False

    # --- processes

    async def start_process(self, argv: list[str], cwd: str | None) -> ClientProcess:
        """Start a process that lasts until it ends, is stopped, or the sandbox is closed.

        Raises:
            UsageError: Too many run already.
        """
        running = [process for process in self.processes.values() if not process.is_over]
        if len(running) >= self._max_processes:
            raise UsageError(
                f"{len(running)} processes run in sandbox {self.handle!r}, the most that may; stop one first"
            )
        for ended in [key for key, process in self.processes.items() if process.is_over]:
            if len(self.processes) >= 2 * self._max_processes:
                del self.processes[ended]
        self._numbers += 1
        process = ClientProcess(f"process-{self._numbers}", argv)
        assert self._tasks is not None
        self.processes[process.handle] = process
        self._tasks.start_soon(self._follow, process, cwd)
        await process.started.wait()
        return process

    async def _follow(self, process: ClientProcess, cwd: str | None) -> None:
        assert self._sandbox is not None
        assert self._emit is not None
        sandbox, emit = self._sandbox, self._emit
        try:
            async with sandbox.spawn(process.argv, cwd=cwd) as spawned:
                await process.follow(spawned)
        except RingfenceError as exc:
            process.failure = process.failure or exc
        finally:
            process.started.set()
            if process.is_started:
                with anyio.CancelScope(shield=True):
                    end, output = process.end or _KILLED, text_of(process.recorded)
                    self._count_record(len(output))
                    await emit(command_ended(sandbox, process.argv, end, output, ""))

    def process(self, handle: str) -> ClientProcess:
        """Find a process.

        Raises:
            UsageError: There is none of this handle.
        """
        found = self.processes.get(handle)
        if found is None:
            raise UsageError(f"sandbox {self.handle!r} has no process {handle!r}; process_start starts one")
        return found
