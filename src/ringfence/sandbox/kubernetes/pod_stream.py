"""A stream to a container: stdin, stdout and stderr over a WebSocket.

The first byte of each message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 how a command ended, as a `Status` object
(KEP-4006, "Transition from SPDY to WebSockets"). Version 5 can end stdin, by a message of channel 255 with the channel
to end; the versions before cannot.
"""

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import anyio
from anyio.abc import ByteStream

from ringfence.frozen import frozen
from ringfence.sandbox.kubernetes.cluster_error import shown

_V5 = "v5.channel.k8s.io"
PROTOCOLS = (_V5, "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_TO_STDIN = bytes((_STDIN,))
_CLOSE_STDIN = bytes((255, _STDIN))
_SENT_MESSAGE_BYTES = 128 * 1024
"""Larger messages are not faster, and what is sent after one waits until all of it has left."""
_READ = 64 * 1024
_LAST_WORDS = 4096
_CLOSE_S = 1.0
KEEP_ALIVE_S = 30.0
"""Proxies cut a silent stream after a minute, a kubelet after four hours, which does not count pings."""
_DEAD_AFTER_S = 60
"""How long bytes that were sent may stay unacknowledged by the other machine."""
_PLAIN_CLOSE = (1000, 1001, 1005, 0)
"""Codes of an end without an error; servers of version 4 send none (1005, which aiohttp reports as 0)."""


@frozen
class StreamEnd:
    """Why a stream ended."""

    detail: str
    is_broken: bool
    """Whether the connection broke, was closed with an error, or carried what is not from a cluster.

    Otherwise the cluster reported how the command, or attaching, ended, or just closed the stream.
    """


class PodStream(ByteStream):
    """The stdin and stdout of a container, and the end of its stderr.

    One task may receive and one may send at a time. While a task receives, a stream without traffic is kept alive.

    Args:
        socket: A WebSocket with one of `PROTOCOLS`.
        keep_alive_s: Seconds of silence after which something is sent.

    Attributes:
        stderr: The end of the stderr received so far.
        status: How the command ended, once that was received: a `Status` object.
        end: Why the stream ended; None before, and where it was closed here.
    """

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, *, keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        self._socket = socket
        self._keep_alive_s = keep_alive_s
        self._rest = memoryview(b"")
        self._is_closed = self._is_stdin_over = False
        self._last_sent = time.monotonic()
        self.stderr = b""
        self.status: Mapping[str, Any] | None = None
        self.end: StreamEnd | None = None
        _notice_death(socket)

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Receive bytes from stdout.

        Raises:
            anyio.EndOfStream: The command has ended, or the cluster has closed the stream.
            anyio.BrokenResourceError: The connection is lost, or what came was not from a cluster; see `end`.
            anyio.ClosedResourceError: It was closed here.
        """
        while not self._rest:
            if self._is_closed:
                raise anyio.ClosedResourceError
            if self.end is not None:
                raise anyio.BrokenResourceError if self.end.is_broken else anyio.EndOfStream
            await self._receive_message()
        taken, self._rest = self._rest[:max_bytes], self._rest[max_bytes:]
        return bytes(taken)

    @property
    def last_words(self) -> str:
        """The end of stderr, as it can be shown."""
        return shown(self.stderr.decode("utf-8", "replace").strip())

    @property
    def why_ended(self) -> str:
        """Why the command has ended: its last line on stderr, or what the cluster says of it."""
        said = str((self.status or {}).get("message") or (self.end and self.end.detail) or "it ended early")
        return shown(self.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2] or said)

    async def _receive_message(self) -> None:
        try:
            message = await self._socket.receive(timeout=self._keep_alive_s)
        except TimeoutError:
            await self.keep_alive()
            return
        if message.type is aiohttp.WSMsgType.BINARY:
            if message.data:
                self._take(message.data[0], message.data)
        elif message.type is aiohttp.WSMsgType.CLOSE:
            said = f"the cluster closed the stream with code {message.data}: {shown(message.extra or 'no reason')}"
            self.end = StreamEnd(said, is_broken=message.data not in _PLAIN_CLOSE)
        elif message.type is aiohttp.WSMsgType.ERROR and isinstance(message.data, aiohttp.WebSocketError):
            self._refuse(f"what is no message: {message.data}")
        elif message.type in (
            aiohttp.WSMsgType.ERROR,
            aiohttp.WSMsgType.CLOSING,
            aiohttp.WSMsgType.CLOSED,
        ):
            self._lose(message.data)
        else:
            self._refuse(f"a message of kind {message.type.name}, not binary")

    def _take(self, channel: int, message: bytes) -> None:
        if channel == _STDOUT:
            self._rest = memoryview(message)[1:]
        elif channel == _STDERR:
            self.stderr = (self.stderr + message[1:])[-_LAST_WORDS:]
        elif channel == _ERROR:
            # A server of version 4 opens each channel with a message without contents.
            if len(message) > 1:
                self.status = _parse_status(message[1:])
                said = str(self.status.get("message") or self.status.get("status") or "no reason")
                self.end = StreamEnd(shown(said), is_broken=False)
        else:
            self._refuse(f"a message on channel {channel}, which is none")

    def _refuse(self, what: str) -> None:
        self.end = StreamEnd(shown(f"the cluster sent {what}"), is_broken=True)

    async def keep_alive(self) -> None:
        """After silence, send an empty message, which a kubelet counts, and a ping, whose answer proxies count."""
        if time.monotonic() - self._last_sent < self._keep_alive_s:
            return
        try:
            if not self._is_stdin_over:
                await self._send(_TO_STDIN)
            await self._socket.ping()
        except (anyio.BrokenResourceError, ConnectionError, aiohttp.ClientError) as exc:
            self._lose(exc)

    def _lose(self, cause: object) -> None:
        if self.end is None:
            said = f"the connection to the cluster broke: {shown(str(cause or 'closed'))}"
            self.end = StreamEnd(said, is_broken=True)

    async def send(self, item: bytes) -> None:
        """Send to stdin, waiting while the other side does not read.

        Raises:
            anyio.BrokenResourceError: The connection is lost.
            anyio.ClosedResourceError: It was closed here.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        view = memoryview(item)
        for start in range(0, len(view), _SENT_MESSAGE_BYTES):
            await self._send(_TO_STDIN + view[start : start + _SENT_MESSAGE_BYTES])

    async def _send(self, message: bytes) -> None:
        try:
            await self._socket.send_bytes(message)
        except (ConnectionError, aiohttp.ClientError, RuntimeError) as exc:
            raise anyio.BrokenResourceError from exc
        self._last_sent = time.monotonic()

    async def send_eof(self) -> None:
        """End stdin, where the protocol can do that; what reads it must not rely on it."""
        if self._socket.protocol == _V5 and not self._is_stdin_over:
            await self._send(_CLOSE_STDIN)
            self._is_stdin_over = True

    async def aclose(self) -> None:
        """Close the connection, which also ends the container's stdin. Takes two seconds at most."""
        if self._is_closed:
            return
        self._is_closed = True
        connection = self._socket.get_extra_info("socket")
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._socket.close()
        if connection is not None:
            with suppress(OSError):  # it is closed; one whose server reads nothing would stay
                connection.shutdown(socket.SHUT_RDWR)


def _parse_status(text: bytes) -> Mapping[str, Any]:
    """The object on channel 3; what is no `Status` becomes one that reports a failure."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    return {"status": "Failure", "message": text[:_LAST_WORDS].decode("utf-8", "replace")}


def _notice_death(websocket: aiohttp.ClientWebSocketResponse) -> None:
    """Have the kernel end a connection whose other machine is gone."""
    connection = websocket.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _DEAD_AFTER_S // 2)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER_S * 1000)
