"""A process inside a sandbox that a client polls: its output is kept within bounds, its input is queued."""

from collections import deque
from contextlib import suppress
from typing import Any

import anyio

from ringfence.errors import RingfenceError, SandboxFileError, UsageError
from ringfence.integrations.mcp.text import decode_page
from ringfence.sandbox import ProcessEnd, SandboxProcess
from ringfence.sandbox.protocol.command import OutputStream
from ringfence.sandbox.protocol.stream import Wakeup
from ringfence.sandbox.result import BoundedOutput

KEPT_BYTES = 1024**2
"""Output that is kept for a process; what is older is dropped."""
INPUT_BYTES = 4 * 1024**2
"""Input that may wait for a process."""
FLOOD_BYTES = 1024**3
"""A process that writes more is killed."""
_RECORDED_BYTES = 64 * 1024


class KeptOutput:
    """The last bytes of a stream, each at its position since the beginning."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self.total = 0
        self._limit = limit_bytes
        self._kept = bytearray()

    @property
    def oldest(self) -> int:
        """The position of the oldest byte that is kept."""
        return self.total - len(self._kept)

    def add(self, chunk: bytes) -> None:
        """Append bytes; drop the oldest ones beyond the limit."""
        self.total += len(chunk)
        self._kept += chunk[-self._limit :]
        if len(self._kept) > self._limit:
            del self._kept[: -self._limit]

    def page(self, cursor: int, limit_bytes: int, *, is_complete: bool) -> dict[str, Any]:
        """Return the output from a position on.

        Args:
            cursor: The position; what was dropped after it is counted as `dropped_bytes`.
            limit_bytes: Return at most this much.
            is_complete: Whether no output will follow; otherwise a character of which bytes are missing is left for
                the next page.

        Raises:
            UsageError: There is no such position yet.
        """
        if cursor > self.total:
            raise UsageError(
                f"cursor {cursor} is beyond the {self.total} bytes written so far; use next_cursor"
            )
        begin = max(cursor, self.oldest)
        at = begin - self.oldest
        piece = bytes(self._kept[at : at + limit_bytes])
        is_last = is_complete and begin + len(piece) == self.total
        text, taken = decode_page(piece, is_last=is_last)
        return {
            "output": text.text,
            "is_replaced": text.is_replaced,
            "dropped_bytes": begin - cursor,
            "next_cursor": begin + taken,
            "total_bytes": self.total,
        }


class ClientProcess:
    """A process that lasts beyond the call that started it."""

    def __init__(self, handle: str, argv: list[str]) -> None:
        self.handle = handle
        self.argv = argv
        self.output = KeptOutput()
        self.recorded = BoundedOutput(_RECORDED_BYTES)
        """What the record holds of the output."""
        self.end: ProcessEnd | None = None
        self.failure: RingfenceError | None = None
        """Why the process could not be started, or was lost."""
        self.started = anyio.Event()
        self._process: SandboxProcess | None = None
        self._input: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_input_ended = False
        self._changed = Wakeup()

    @property
    def is_over(self) -> bool:
        """Whether the process has ended, or never began."""
        return self.end is not None or self.failure is not None

    @property
    def is_started(self) -> bool:
        """Whether the process was started, as far as is known."""
        return self._process is not None and not isinstance(self.failure, SandboxFileError)

    async def follow(self, process: SandboxProcess) -> None:
        """Gather the output and send the input until the process has ended."""
        self._process = process
        self.started.set()
        try:
            async with anyio.create_task_group() as feeding:
                feeding.start_soon(self._feed)
                async with anyio.create_task_group() as reading:
                    reading.start_soon(self._gather, process.stdout)
                    reading.start_soon(self._gather, process.stderr)
                try:
                    self.end = await process.wait()
                except SandboxFileError as exc:
                    self.failure = exc
                feeding.cancel_scope.cancel()
        finally:
            if not self.is_over:
                self.failure = RingfenceError("it was lost with its sandbox")
            self._changed.notify_all()

    async def _gather(self, stream: OutputStream) -> None:
        assert self._process is not None
        async for chunk in stream:
            self.output.add(chunk)
            self.recorded.add(chunk)
            self._changed.notify_all()
            if self.output.total > FLOOD_BYTES:
                await self._process.kill()

    async def _feed(self) -> None:
        assert self._process is not None
        with suppress(RingfenceError):  # the sandbox is gone, which its end reports
            while True:
                while not self._input:
                    if self._is_input_ended:
                        await self._process.stdin.aclose()
                        return
                    await self._changed.wait()
                piece = self._input[0]
                await self._process.stdin.send(piece)
                self._input.popleft()
                self._waiting_bytes -= len(piece)

    def write(self, data: bytes, *, end: bool) -> dict[str, Any]:
        """Queue input, all of it or nothing.

        Raises:
            UsageError: It has ended, or too much input waits for it already.
        """
        if self.is_over:
            raise UsageError(f"process {self.handle!r} has ended and reads no input")
        if self._is_input_ended:
            raise UsageError(f"the input of process {self.handle!r} was ended before")
        if self._waiting_bytes + len(data) > INPUT_BYTES:
            raise UsageError(
                f"process {self.handle!r} has not read {self._waiting_bytes} bytes of its input yet, and at most "
                f"{INPUT_BYTES} may wait; nothing was written, try again later"
            )
        if data:
            self._input.append(data)
            self._waiting_bytes += len(data)
        self._is_input_ended = end
        self._changed.notify_all()
        return {"accepted_bytes": len(data), "waiting_bytes": self._waiting_bytes}

    async def wait_for_news(self, cursor: int, wait_s: float) -> None:
        """Wait until there is output at a position, or the process has ended, or the time is over."""
        with anyio.move_on_after(wait_s):
            while not self.is_over and self.output.total <= cursor:
                await self._changed.wait()

    async def stop(self, signal_number: int, wait_s: float) -> None:
        """Send a signal; kill the process with everything it started if it has not ended after a time."""
        if self._process is None or self.is_over:
            return
        await self._process.signal(signal_number)
        with anyio.move_on_after(wait_s):
            while not self.is_over:
                await self._changed.wait()
        if not self.is_over:
            await self._process.kill()
            with anyio.move_on_after(wait_s + 5):
                while not self.is_over:
                    await self._changed.wait()

    def state(self) -> dict[str, Any]:
        """Return the state of the process for its client."""
        if self.end is not None:
            return {"state": "ended", "exit_code": self.end.exit_code, "ended_by": self.end.ended_by}
        if self.failure is not None:
            return {"state": "failed", "reason": str(self.failure)}
        return {"state": "running"}
