"""A process of `claude` with the SDK at its other end. Imported only after `installed.check_sdk`."""

import json
import math
import signal
from collections.abc import AsyncIterator, Iterable
from typing import Any

import anyio
from claude_agent_sdk import ClaudeSDKClient, Transport

from ringfence.errors import InfrastructureFault
from ringfence.events import Event, ToolCalled, ToolReturned
from ringfence.runtime.base import Emit
from ringfence.runtime.claude_sdk.exchange import Exchange
from ringfence.runtime.claude_sdk.wire import is_control
from ringfence.runtime.client.base import Launch, Stream
from ringfence.runtime.client.driving import Bounds, Drive
from ringfence.runtime.transcript.lines import Line
from ringfence.runtime.transcript.record import JSONObject, Record, parse
from ringfence.sandbox import Sandbox, SandboxProcess

_INTERRUPT_S = 2.0
_WORDS = (b"control_", b"session_state_changed", b"result")
"""One of them is in each line that is looked at here; most lines have none, and are parsed once only."""


class ExchangeTransport(Transport):
    """What the SDK reads from and writes to. Its process is in the sandbox, and is not the transport's to start or end.

    Args:
        exchange: Of the run.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def connect(self) -> None:
        """Nothing: the process is there."""

    async def write(self, data: str) -> None:
        """Pass on a message, which the SDK gives as a line of JSON."""
        await self._exchange.write(json.loads(data))

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """The client's control messages."""
        async for message in self._exchange.messages():
            yield message

    async def close(self) -> None:
        """Nothing: whoever started the process ends it."""

    def is_ready(self) -> bool:
        """Always."""
        return True

    async def end_input(self) -> None:
        """Tell the client that nothing more comes."""
        await self._exchange.end_input()


class SdkDrive(Drive):
    """One process, whose prompt and questions go through the SDK. Use once.

    Args:
        stream: Reads what is no control message.
        launch: How it is started.
        bounds: What it may use.
        emit: Records an event.
        prompt: The task.
        options: The SDK's.
        servers: MCP servers in this process: what their tools did is told here, not by the client.
    """

    def __init__(
        self,
        stream: Stream,
        launch: Launch,
        bounds: Bounds,
        emit: Emit,
        *,
        prompt: str,
        options: Any,
        servers: Iterable[str],
    ) -> None:
        super().__init__(stream, launch, bounds, emit)
        self._prompt = prompt
        self._exchange = Exchange(self._tell_one, self._hear)
        self._sdk = ClaudeSDKClient(options, ExchangeTransport(self._exchange))
        self._told_here = tuple(f"mcp__{name}__" for name in servers)
        self._has_result = False
        self._state: object = None
        self._is_done = anyio.Event()

    async def run(self, sandbox: Sandbox) -> None:
        """Start it and follow it to its end; see `Drive.run`.

        Raises:
            InfrastructureFault: Also: it does not answer the SDK.
        """
        try:
            await super().run(sandbox)
        finally:
            self._exchange.close()

    async def _feed(self, process: SandboxProcess) -> None:
        """The SDK's side of the conversation, for as long as there is one."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._exchange.serve, process.stdin)
            try:
                await self._converse()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._sdk.disconnect()
                tasks.cancel_scope.cancel()

    async def _converse(self) -> None:
        try:
            await self._sdk.connect()
            await self._sdk.query(self._prompt)
        except Exception as exc:
            if self._exchange.is_over:
                return  # it has ended, and by what is judged by its output
            raise InfrastructureFault(f"claude did not answer the SDK's greeting: {exc}") from exc
        await self._is_done.wait()
        await self._exchange.end_input()

    async def _read(self, process: SandboxProcess) -> None:
        try:
            await super()._read(process)
        finally:
            await self._exchange.finish()

    async def _take(self, line: Line) -> None:
        values = [item.value for item in parse(line) if isinstance(item, Record)] if _is_ours(line) else []
        if values and is_control(values[0]):
            await self._exchange.take(values[0])
        elif not values or not self._is_state(values[0]):
            await super()._take(line)
            self._note(values)

    def _is_state(self, value: JSONObject) -> bool:
        """Whether it only says that it is at work, or is not."""
        if value.get("type") != "system" or value.get("subtype") != "session_state_changed":
            return False
        self._state = value.get("state")
        self._see_whether_done()
        return True

    def _note(self, values: list[JSONObject]) -> None:
        if any(value.get("type") == "result" for value in values):
            self._has_result = True
            self._see_whether_done()

    def _see_whether_done(self) -> None:
        if self._has_result and self._state in (None, "idle"):
            self._is_done.set()

    async def _tell(self, events: list[Event]) -> None:
        await super()._tell([event for event in events if not self._is_told_here(event)])

    def _is_told_here(self, event: Event) -> bool:
        return isinstance(event, ToolCalled | ToolReturned) and event.tool.startswith(self._told_here)

    async def _tell_one(self, event: Event) -> None:
        """What the host did: it counts as what the client says does."""
        await super()._tell([event])

    def _hear(self) -> None:
        """A client that waits for the host is not silent."""
        if self._exchange.is_busy:
            self._silence.deadline = math.inf
        else:
            super()._hear()

    async def _bring_down(self, process: SandboxProcess) -> None:
        await self._is_to_end.wait()
        self._signals.append(signal.SIGINT)  # that is what the interruption stands for, by another way
        with anyio.move_on_after(_INTERRUPT_S):
            await self._exchange.interrupt()
            await anyio.sleep_forever()
        await super()._bring_down(process)


def _is_ours(line: Line) -> bool:
    return line.data is not None and any(word in line.data for word in _WORDS)
