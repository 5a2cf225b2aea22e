"""Relays one command between a client and the guest, under the client's own channel number.

Credit is passed from end to end, for output and for input: the supervisor buffers only output that the client has not
read yet, bounded by the client's window.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from ringfence.errors import SandboxDied, UsageError
from ringfence.events import CommandEnded
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.records import Exit, Failure, encode_end, encode_refusals
from ringfence.sandbox.result import BoundedOutput
from ringfence.sandbox.supervisor.connection import ClientError
from ringfence.secret import Redactor, environment_secrets

if TYPE_CHECKING:
    from ringfence.sandbox.supervisor.server import AttachedClient, SandboxServer

_RECORDED_BYTES = 64 * 1024
_LARGEST_WINDOW = 4 * 1024 * 1024
_CONTROLS = frozenset({frames.STDIN_END, frames.SIGNAL, frames.RESIZE, frames.KILL})
_CREDITS: Mapping[int, int] = {frames.CREDIT_OUT: frames.STDOUT, frames.CREDIT_ERR: frames.STDERR}


class CommandRelay:
    """A command or file operation that is relayed between a client and the guest.

    Raises:
        ClientError: The OPEN record has no window.
        UsageError: The window is too large, or there are too many commands.
        SandboxDied: The sandbox is gone.
    """

    def __init__(
        self, server: "SandboxServer", client: "AttachedClient", number: int, record: list[tuple[str, str]]
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
        fields = [pair for pair in record if pair[0] not in ("window", "record")]
        self._channel = server.sandbox.session.open_record(
            frames.encode_record(fields), window=_window(record)
        )
        self._channel.sink = self._on_output
        self._channel.on_credit = self._on_credit

    def _on_output(self, kind: int, chunk: bytes) -> None:
        if self._records_output:
            self._output[kind].add(chunk)
        self._unread[kind] += len(chunk)
        self._client.send(kind, self._number, chunk)

    def _on_credit(self, count: int) -> None:
        self._client.send(frames.CREDIT_IN, self._number, frames.U32.pack(count))

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
            if not self._channel.post_stdin(payload):
                raise ClientError("sent more input than was granted")
        elif kind in _CONTROLS:
            self._channel.post(kind, payload)
        else:
            raise ClientError(f"sent frame kind {kind} on a command's channel")

    def kill(self) -> None:
        """Kill the command with everything that it started."""
        self._channel.post(frames.KILL)

    async def run(self) -> None:
        """Wait for the end, record it, then send it to the client."""
        with self._server.sandbox.refusals.watched() as refused:
            try:
                end = await self._channel.wait()
            except SandboxDied:
                return  # the client is notified of that once for all its commands
        if isinstance(end, Exit):
            end = structs.replace(end, refused=encode_refusals(refused))
            with suppress(SandboxDied):
                end = structs.replace(end, ended_by=await self._server.sandbox.session.find_cause(end))
        if self._argv:
            await self._server.record(self._redactor.redact(self._event(end)))
        del self._client.commands[self._number]
        kind = frames.EXIT if isinstance(end, Exit) else frames.FAIL
        self._client.send(kind, self._number, encode_end(end))

    def _event(self, end: Exit | Failure) -> CommandEnded:
        stdout, stderr = (output.value().decode("utf-8", "replace") for output in self._output.values())
        if isinstance(end, Failure):
            code, ended_by, duration_s, stderr = 126, "exit", 0.0, end.message
        else:
            code, ended_by, duration_s = end.exit_code, end.ended_by, end.duration_s
        return CommandEnded(
            sandbox_id=self._server.sandbox.id,
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
