"""One command of an attached client: its channel on the guest's stream, under the client's own number.

Credit for output goes from end to end: what the client has not given back is what the holder may have to keep.
Input is taken by the holder's own grant and passed on as the guest grants.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from ringfence.errors import SandboxDied, UsageError
from ringfence.events import CommandEnded
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.process import process_end
from ringfence.sandbox.protocol.records import Exit, Failure
from ringfence.sandbox.result import BoundedOutput
from ringfence.sandbox.supervisor.peer import Peer, PeerError
from ringfence.secret import Redactor, environment_secrets

if TYPE_CHECKING:
    from ringfence.sandbox.supervisor.relay import Relay

_KEPT_BYTES = 64 * 1024
_LARGEST_WINDOW = 4 * 1024 * 1024
_CONTROLS = frozenset({frames.SIGNAL, frames.RESIZE, frames.KILL})
_CREDITS: Mapping[int, int] = {frames.CREDIT_OUT: frames.STDOUT, frames.CREDIT_ERR: frames.STDERR}


class RelayedCommand:
    """A command or file operation on its way between a client and the guest."""

    def __init__(self, relay: "Relay", peer: Peer, number: int, record: list[tuple[str, str]]) -> None:
        self.number = number
        self._relay = relay
        self._peer = peer
        self._argv = [value for key, value in record if key == "argv"]
        self._kept = {frames.STDOUT: BoundedOutput(_KEPT_BYTES), frames.STDERR: BoundedOutput(_KEPT_BYTES)}
        self._keeps_output = ("record", "command") not in record
        variables = dict(value.partition("=")[::2] for key, value in record if key == "env")
        # The holder's creator knew nothing of what is given to a single command.
        self._redactor = Redactor(environment_secrets(variables))
        self._unread = {frames.STDOUT: 0, frames.STDERR: 0}
        self._stdin: deque[bytes] = deque()
        self._stdin_held = 0
        self._is_stdin_over = False
        self._changed = anyio.Event()
        self._over = anyio.Event()
        fields = [pair for pair in record if pair[0] not in ("window", "record")]
        self._channel = relay.session.open_fields(fields, _window(record), self._on_output)
        self._channel.on_end = self._over.set

    def _on_output(self, kind: int, chunk: bytes) -> None:
        if self._keeps_output and self._argv:
            self._kept[kind].add(chunk)
        self._unread[kind] += len(chunk)
        self._peer.send(kind, self.number, chunk)

    def on_frame(self, kind: int, payload: bytes) -> None:
        """A frame of the client for this command.

        Raises:
            PeerError: It is none, or breaks the credit.
        """
        if kind in _CREDITS and len(payload) == frames.U32.size:
            (count,) = frames.U32.unpack(payload)
            output = _CREDITS[kind]
            if count > self._unread[output]:
                raise PeerError("gave back more credit than it was sent output")
            self._unread[output] -= count
            self._channel.consumed(output, count)
        elif kind == frames.STDIN:
            self._take_stdin(payload)
        elif kind == frames.STDIN_END:
            self._is_stdin_over = True
            self._changed.set()
        elif kind in _CONTROLS:
            self._channel.post(kind, payload)
        else:
            raise PeerError(f"sent frame kind {kind} on a command's channel")

    def _take_stdin(self, payload: bytes) -> None:
        self._stdin_held += len(payload)
        if self._stdin_held > frames.STDIN_WINDOW:
            raise PeerError("sent more input than was granted")
        self._stdin.append(payload)
        self._changed.set()

    def kill(self) -> None:
        """Its client has gone: everything it started dies."""
        self._channel.post(frames.KILL)

    async def see_through(self) -> None:
        """Pass input on until the end, record the end, then tell the client of it."""
        with self._relay.refusals.watched() as refused:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._pass_stdin)
                await self._over.wait()
                tasks.cancel_scope.cancel()
        end = self._channel.end
        if end is None:
            return  # the sandbox is gone: the client is told so for all its commands at once
        if isinstance(end, Exit):
            blamed = await self._relay.session.blame(process_end(end).ended_by, end.exit_code)
            end = Exit(end.exit_code, end.signal, blamed, end.duration_s, tuple(refused))
        if self._argv:
            await self._relay.record(self._redactor.redact_event(self._event(end)))
        self._relay.forget(self._peer, self.number)
        self._peer.send(*_last_frame(end, self.number))

    async def _pass_stdin(self) -> None:
        with suppress(SandboxDied):
            while not (self._is_stdin_over and not self._stdin):
                if not self._stdin:
                    self._changed = anyio.Event()
                    await self._changed.wait()
                    continue
                piece = self._stdin.popleft()
                await self._channel.send_stdin(piece)
                self._stdin_held -= len(piece)
                if piece:
                    self._peer.send(frames.CREDIT_IN, self.number, frames.U32.pack(len(piece)))
            self._channel.post(frames.STDIN_END)

    def _event(self, end: Exit | Failure) -> CommandEnded:
        stdout, stderr = (
            self._kept[kind].value().decode("utf-8", "replace") for kind in (frames.STDOUT, frames.STDERR)
        )
        told = [word.encode("utf-8", "replace").decode() for word in self._argv]
        if isinstance(end, Failure):
            code, ended_by, duration_s, stderr = 126, "exit", 0.0, end.message
        else:
            code, ended_by, duration_s = end.exit_code, end.ended_by, end.duration_s
        return CommandEnded(
            sandbox_id=self._relay.sandbox_id,
            argv=told,
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
        raise PeerError(f"an OPEN without a window: {exc}") from exc
    if not 0 < window <= _LARGEST_WINDOW:
        raise UsageError(f"a window of {window} bytes; at most {_LARGEST_WINDOW} are kept for a client")
    return window


def _last_frame(end: Exit | Failure, number: int) -> tuple[int, int, bytes]:
    fields: list[tuple[str, object]]
    if isinstance(end, Failure):
        fields = [("stage", end.stage), ("errno", end.errno), ("message", end.message)]
        return frames.FAIL, number, frames.encode_record(fields)
    fields = [
        ("code", end.exit_code),
        ("signal", end.signal or 0),
        ("ended_by", end.ended_by),
        ("duration_s", f"{end.duration_s:.6f}"),
    ]
    if end.refused:
        fields.append(("refused", "\n".join(line.replace("\n", " ") for line in end.refused)))
    return frames.EXIT, number, frames.encode_record(fields)
