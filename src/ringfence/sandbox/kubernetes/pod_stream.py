"""A stream to a container: stdin, stdout and stderr over a WebSocket.

The first byte of each message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 how a command ended, as a `Status` object
(KEP-4006, "Transition from SPDY to WebSockets"). Version 5 can end stdin, by a message of channel 255 with the channel
to end; the versions before cannot.
"""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import anyio
from anyio.abc import ByteStream

from ringfence.sandbox.protocol.records import ProtocolError

_V5 = "v5.channel.k8s.io"
PROTOCOLS = (_V5, "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_CLOSE_STDIN = bytes((255, _STDIN))
_MESSAGE_BYTES = 128 * 1024
_READ = 64 * 1024
_LAST_WORDS = 4096
_CLOSE_S = 2.0


class PodStream(ByteStream):
    """The stdin and stdout of a container, and the end of its stderr.

    `receive` also raises `ProtocolError` for messages that do not come from a cluster.

    Attributes:
        stderr: The end of the stderr received so far.
        status: How the command ended, once that was received: a `Status` object.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._rest = memoryview(b"")
        self.stderr = b""
        self.status: Mapping[str, Any] | None = None

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Receive bytes from stdout."""
        while not self._rest:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.ERROR:
                raise anyio.BrokenResourceError from message.data
            if message.type in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSING,
                aiohttp.WSMsgType.CLOSED,
            ):
                raise anyio.EndOfStream
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                if message.type is aiohttp.WSMsgType.BINARY:
                    continue
                raise ProtocolError(f"sent a message of kind {message.type.name}, not binary")
            self._take(message.data[0], message.data)
        taken, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return bytes(taken)

    def _take(self, channel: int, message: bytes) -> None:
        if channel == _STDOUT:
            self._rest = memoryview(message)[1:]
        elif channel == _STDERR:
            self.stderr = (self.stderr + message[1:])[-_LAST_WORDS:]
        elif channel == _ERROR:
            try:
                found = json.loads(message[1:] or b"{}")
            except ValueError:
                found = {
                    "status": "Failure",
                    "message": message[1 : 1 + _LAST_WORDS].decode("utf-8", "replace"),
                }
            self.status = found if isinstance(found, dict) else {}
        else:
            raise ProtocolError(f"sent a message on channel {channel}, which is none")

    async def send(self, item: bytes) -> None:
        """Send to stdin."""
        view = memoryview(item)
        try:
            for start in range(0, len(view), _MESSAGE_BYTES):
                await self._socket.send_bytes(b"\0" + view[start : start + _MESSAGE_BYTES])
        except (ConnectionError, aiohttp.ClientError, RuntimeError) as exc:
            raise anyio.BrokenResourceError from exc

    async def send_eof(self) -> None:
        """End stdin, where the protocol can do that; what reads it must not rely on it."""
        if self._socket.protocol == _V5:
            try:
                await self._socket.send_bytes(_CLOSE_STDIN)
            except (ConnectionError, aiohttp.ClientError, RuntimeError) as exc:
                raise anyio.BrokenResourceError from exc

    async def aclose(self) -> None:
        """Close the connection, which also ends the container's stdin."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._socket.close()
