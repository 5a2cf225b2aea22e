"""One command of a client: its channel on the guest's stream, under the client's own number.

Credit for output goes from end to end: what the client has not given back is what the supervisor may have to keep.
Input is taken by the supervisor's own grant and passed on as the guest grants.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from msgspec import structs

from ringfence.errors import SandboxDied, UsageError
from ringfence.events import CommandEnded
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.records import Exit, Failure, encode_end
from ringfence.sandbox.result import BoundedOutput
from ringfence.sandbox.supervisor.connection import ClientError, FrameConnection
from ringfence.secret import Redactor, environment_secrets

if TYPE_CHECKING:
    from ringfence.sandbox.supervisor.server import SandboxServer

_RECORDED_BYTES = 64 * 1024
_LARGEST_WINDOW = 4 * 1024 * 1024
_CONTROLS = frozenset({frames.SIGNAL, frames.RESIZE, frames.KILL})
_CREDITS: Mapping[int, int] = {frames.CREDIT_OUT: frames.STDOUT, frames.CREDIT_ERR: frames.STDERR}


class CommandRelay:
    """A command or file operation on its way between a client and the guest.

    Raises:
        ClientError: The OPEN record has no window.
        UsageError: The window is too large, or there are too many commands.
        SandboxDied: The sandbox is gone.
    """

    def __init__(
        self, server: "SandboxServer", client: FrameConnection, number: int, record: list[tuple[str, str]]
    ) -> None:
        self._server = server
        self._client = client
        self._number = number
        self._argv = [value for key, value in record if key == "argv"]
        self._output = {kind: BoundedOutput(_RECORDED_BYTES) for kind in (frames.STDOUT, frames.STDERR)}
        self._records_output = bool(self._argv) and ("record", "command") not in record
        # The supervisor's creator did not know the secrets that are given to a single command.
        variables = dict(value.partition("=")[::2] for key, value in record if key == "env")
        self._redactor = Redactor(environment_secrets(variables))
        self._unread = {frames.STDOUT: 0, frames.STDERR: 0}
        self._stdin: deque[bytes] = deque()
        self._stdin_bytes = 0
        self._is_stdin_over = False
        self._has_stdin = anyio.Event()
        fields = [pair for pair in record if pair[0] not in ("window", "record")]
        self._channel = server.session.open_record(frames.encode_record(fields), window=_window(record))
        self._channel.sink = self._on_output

    def _on_output(self, kind: int, chunk: bytes) -> None:
        if self._records_output:
            self._output[kind].add(chunk)
        self._unread[kind] += len(chunk)
        self._client.send(kind, self._number, chunk)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """Take a frame of the client for this command.

        Raises:
            ClientError: It is malformed, or exceeds the credit.
        """
        if kind in _CREDITS and len(payload) == frames.U32.size:
            (count,) = frames.U32.unpack(payload)
            output = _CREDITS[kind]
            if count > self._unread[output]:
                raise ClientError("gave back more credit than it was sent output")
            self._unread[output] -= count
            self._channel.consumed(output, count)
        elif kind == frames.STDIN:
            self._stdin_bytes += len(payload)
            if self._stdin_bytes > frames.STDIN_WINDOW:
                raise ClientError("sent more input than was granted")
            self._stdin.append(payload)
            self._has_stdin.set()
        elif kind == frames.STDIN_END:
            self._is_stdin_over = True
            self._has_stdin.set()
        elif kind in _CONTROLS:
            self._channel.post(kind, payload)
        else:
            raise ClientError(f"sent frame kind {kind} on a command's channel")

    def kill(self) -> None:
        """Kill the command with everything that it started."""
        self._channel.post(frames.KILL)

    async def run(self) -> None:
        """Pass input on until the end, record the end, then send it to the client."""
        with self._server.refusals.watched() as refused:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_stdin)
                with suppress(SandboxDied):
                    await self._channel.wait()
                tasks.cancel_scope.cancel()
        end = self._channel.end
        if end is None:
            return  # the sandbox is gone: the client learns that for all its commands at once
        if isinstance(end, Exit):
            cause = await self._server.session.find_cause(end)
            lines = "\n".join(line.replace("\n", " ") for line in refused)
            end = structs.replace(end, ended_by=cause, refused=lines)
        if self._argv:
            await self._server.record(self._redactor.redact_event(self._event(end)))
        self._server.forget(self._client, self._number)
        kind = frames.EXIT if isinstance(end, Exit) else frames.FAIL
        self._client.send(kind, self._number, encode_end(end))

    async def _pass_stdin(self) -> None:
        with suppress(SandboxDied):
            while self._stdin or not self._is_stdin_over:
                if not self._stdin:
                    self._has_stdin = anyio.Event()
                    await self._has_stdin.wait()
                    continue
                piece = self._stdin.popleft()
                await self._channel.send_stdin(piece)
                self._stdin_bytes -= len(piece)
                if piece:
                    self._client.send(frames.CREDIT_IN, self._number, frames.U32.pack(len(piece)))
            self._channel.post(frames.STDIN_END)

    def _event(self, end: Exit | Failure) -> CommandEnded:
        stdout, stderr = (output.value().decode("utf-8", "replace") for output in self._output.values())
        if isinstance(end, Failure):
            code, ended_by, duration_s, stderr = 126, "exit", 0.0, end.message
        else:
            code, ended_by, duration_s = end.exit_code, end.ended_by, end.duration_s
        return CommandEnded(
            sandbox_id=self._server.sandbox_id,
            argv=[word.encode("utf-8", "replace").decode() for word in self._argv],
            exit_code=code,
            ended_by=ended_by,
            duration_ms=round(duration_s * 1000, 3),
            stdout=stdout,
            stderr=stderr,
        )


def _window(record: list[tuple[str, str]]) -> int:
    try:
        window = int(dict(record)["window"])
    except (KeyError, ValueError) as exc:
        raise ClientError(f"an OPEN without a window: {exc}") from exc
    if not 0 < window <= _LARGEST_WINDOW:
        raise UsageError(f"a window of {window} bytes; at most {_LARGEST_WINDOW} are kept for a client")
    return window
