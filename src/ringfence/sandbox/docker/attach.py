"""Attaches to a container's stream: an upgraded HTTP connection, to which the engine adds headers.

The engine's response (101) must have arrived before the container is started, or its first output is lost.
"""

import socket
import struct

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

from ringfence.descriptor_stream import descriptor_stream
from ringfence.sandbox.docker.address import Address
from ringfence.sandbox.docker.client import EngineError, error_message
from ringfence.sandbox.protocol.records import ProtocolError

_DOING = "attach to the container"
_CONNECT_S = 20.0
_ANSWER_BYTES = 64 * 1024
_READ = 64 * 1024
_SEND_BUFFER = 1024 * 1024


_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR = 1, 2
_LARGEST = 16 * 1024 * 1024
_LAST_WORDS = 4096


class Demultiplexer:
    """Removes the engine's headers from a container's output: forwards stdout and keeps the end of stderr.

    Docker Engine API, "ContainerAttach", stream format: 8 bytes before each piece of stdout or stderr, namely the kind,
    three zeros, and the length, big-endian.
    """

    def __init__(self) -> None:
        self.stderr = b""
        self._rest = b""
        self._kind = _STDOUT
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Return the stdout in the next bytes of the stream, however they are split.

        Raises:
            ProtocolError: A header is malformed.
        """
        if not self._rest and self._kind == _STDOUT and len(data) <= self._left:
            self._left -= len(data)
            return data
        data = self._rest + data
        stdout, position, end = [], 0, len(data)
        while True:
            piece = data[position : position + self._left]
            position += len(piece)
            self._left -= len(piece)
            if self._kind == _STDOUT:
                stdout.append(piece)
            else:
                self.stderr = (self.stderr + piece)[-_LAST_WORDS:]
            if self._left or end - position < _HEADER.size:
                break
            self._kind, self._left = _HEADER.unpack_from(data, position)
            if self._kind not in (_STDOUT, _STDERR) or self._left > _LARGEST:
                raise ProtocolError(f"came with a header that is none: {data[position : position + 8]!r}")
            position += _HEADER.size
        self._rest = data[position:]
        return b"".join(stdout)


class AttachStream(ByteStream):
    """The stdin and stdout of a container, and the end of its stderr.

    `receive` also raises `ProtocolError` for bytes that do not come from an engine.
    """

    def __init__(self, connection: ByteStream) -> None:
        self._connection = connection
        self._demultiplexer = Demultiplexer()

    @property
    def stderr(self) -> bytes:
        """The end of the stderr received so far."""
        return self._demultiplexer.stderr

    async def receive(self, max_bytes: int = _READ) -> bytes:
        """Receive bytes from stdout."""
        while True:
            stdout = self._demultiplexer.feed(await self._connection.receive(max_bytes))
            if stdout:
                return stdout

    async def send(self, item: bytes) -> None:
        """Send to stdin."""
        await self._connection.send(item)

    async def send_eof(self) -> None:
        """End stdin."""
        await self._connection.send_eof()

    async def aclose(self) -> None:
        """Close the connection, which also ends the container's stdin."""
        await self._connection.aclose()


async def attach(address: Address, container: str, api_version: str) -> AttachStream:
    """Attach to a container that was created and is not started yet.

    Args:
        address: The engine's address; for `ssh`, that of the near end of its tunnel.
        container: The container's id.
        api_version: Version of the engine's interface: `1.41`.

    Raises:
        EngineError: The engine cannot be reached or refuses.
    """
    connection: ByteStream | None = None
    try:
        with anyio.fail_after(_CONNECT_S):
            connection = await _connect(address)
            await _upgrade(connection, address.host or "docker", container, api_version)
    except BaseException as exc:
        if connection is not None:
            await anyio.aclose_forcefully(connection)
        if isinstance(exc, TimeoutError):
            raise EngineError(_DOING, f"no answer within {_CONNECT_S:g} s", status=None) from exc
        if isinstance(exc, OSError | h11.ProtocolError):
            raise EngineError(_DOING, str(exc.__cause__ or exc), status=None) from exc
        if isinstance(exc, anyio.EndOfStream | anyio.BrokenResourceError):
            raise EngineError(_DOING, "the engine closed the connection", status=None) from exc
        raise
    return AttachStream(connection)


async def _connect(address: Address) -> ByteStream:
    if address.kind == "unix":
        local = await anyio.connect_unix(address.path)
        _set_option(local, socket.SO_SNDBUF, _SEND_BUFFER)
        return descriptor_stream(local)
    remote: ByteStream
    if address.tls is None:
        remote = await anyio.connect_tcp(address.host, address.port)
    else:
        remote = await anyio.connect_tcp(
            address.host, address.port, ssl_context=address.tls.context(), tls_standard_compatible=False
        )
    _set_option(remote, socket.SO_KEEPALIVE, 1)
    return remote


def _set_option(connection: ByteStream, option: int, value: int) -> None:
    raw = connection.extra(SocketAttribute.raw_socket)  # noqa: S610 -- of a socket
    raw.setsockopt(socket.SOL_SOCKET, option, value)


async def _upgrade(connection: ByteStream, host: str, container: str, api_version: str) -> None:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_ANSWER_BYTES)
    request = h11.Request(
        method="POST",
        target=f"/v{api_version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1",
        headers=[("Host", host), ("Connection", "Upgrade"), ("Upgrade", "tcp"), ("Content-Length", "0")],
    )
    await connection.send((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
    body, status = b"", 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await connection.receive(_READ))
        elif isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            break
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body = (body + bytes(event.data))[:_ANSWER_BYTES]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            refused = error_message(body) if status >= 400 else ""
            said = refused or f"it answered {status} instead of switching protocols"
            raise EngineError(_DOING, said, status=status)
    if http.trailing_data[0]:
        raise EngineError(_DOING, "it spoke before the container was started", status=101)
