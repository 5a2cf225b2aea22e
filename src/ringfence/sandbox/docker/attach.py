"""The attached stream of a container: an upgraded HTTP connection, and the headers the engine puts on it.

The connection itself is what the sandbox reads and writes: no task stands between. The engine's answer (101) must
be there before the container is started, else what it says first is lost. Format of the stream: Docker Engine API,
"ContainerAttach": 8 bytes (kind, three zeros, length, big-endian) before each piece of stdout or stderr.
"""

import json
import os
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

import anyio
import h11
from anyio.abc import SocketAttribute

from ringfence.sandbox.docker.address import Address
from ringfence.sandbox.docker.client import EngineError
from ringfence.sandbox.records import ProtocolError

_CONNECT_S = 20.0
_ANSWER_BYTES = 64 * 1024
_READ = 64 * 1024
_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR = 1, 2
_LARGEST = 16 * 1024 * 1024
_LAST_WORDS = 4096
_SEND_BUFFER = 1024 * 1024


class Attached:
    """One attached container. Owns its connection; `close` it."""

    def __init__(self, connection: socket.socket, tls: "_Tls | None") -> None:
        self._connection = connection
        self._tls = tls
        self._demultiplexer = Demultiplexer()

    @property
    def fd(self) -> int:
        """Of the connection; non-blocking, for both directions."""
        return self._connection.fileno()

    def wrap(self, data: bytes) -> bytes:
        """What is written to `fd` for bytes to the container's stdin."""
        return self._tls.encrypt(data) if self._tls else data

    def unwrap(self, data: bytes) -> bytes:
        """The container's stdout in bytes read from `fd`.

        Raises:
            ProtocolError: They are none of an engine.
        """
        return self._demultiplexer.feed(self._tls.decrypt(data) if self._tls else data)

    @property
    def last_words(self) -> bytes:
        """The end of what came on stderr."""
        return self._demultiplexer.stderr

    def read_last_words(self) -> None:
        """Take what came on stderr when nobody reads the stream any more."""
        try:
            while data := os.read(self.fd, _READ):
                self.unwrap(data)
        except (OSError, ProtocolError):
            return  # no more, or nothing that can be read

    def close(self) -> None:
        """End the connection: the container's stdin ends with it."""
        self._connection.close()


class Demultiplexer:
    """Takes the engine's headers off: stdout is passed on, the end of stderr is kept."""

    def __init__(self) -> None:
        self.stderr = b""
        self._rest = b""
        self._kind = _STDOUT
        self._left = 0

    def feed(self, data: bytes) -> bytes:
        """Stdout in the next bytes of the stream, however they are cut.

        Raises:
            ProtocolError: A header is none.
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


class _Tls:
    """TLS without a task of its own: bytes in, bytes out."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def shake_hands(self, connection: socket.socket) -> None:
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                await _send(connection, self._outgoing.read())
                data = await _receive(connection)
                if not data:
                    raise ConnectionResetError(
                        "the engine closed the connection during the TLS handshake"
                    ) from None
                self._incoming.write(data)
            else:
                await _send(connection, self._outgoing.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        self._incoming.write(data)
        pieces = []
        try:
            while piece := self._object.read(_READ):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # no more for now, or for ever: then the connection ends too
        except ssl.SSLError as exc:
            raise ProtocolError(f"came damaged over TLS: {exc}") from exc
        return b"".join(pieces)


async def attach(address: Address, container: str, api_version: str) -> Attached:
    """Attach to a container that was created and is not started yet.

    Args:
        address: Of the engine; not `ssh`, whose tunnel's near end has one.
        container: Its id.
        api_version: Of the engine's interface: `1.41`.

    Raises:
        EngineError: The engine cannot be reached or refuses.
    """
    doing = "attach to the container"
    connection: socket.socket | None = None
    try:
        with anyio.fail_after(_CONNECT_S):
            connection = await _connect(address)
            tls = None
            if address.tls is not None:
                tls = _Tls(address.tls.context(), address.host)
                await tls.shake_hands(connection)
            await _upgrade(connection, tls, address.host or "docker", container, api_version)
    except BaseException as exc:
        if connection is not None:
            connection.close()
        if isinstance(exc, TimeoutError):
            raise EngineError(doing, f"no answer within {_CONNECT_S:g} s", status=None) from exc
        if isinstance(exc, OSError | h11.ProtocolError | ProtocolError):
            raise EngineError(doing, str(exc), status=None) from exc
        raise
    return Attached(connection, tls)


async def _connect(address: Address) -> socket.socket:
    """A raw connection, non-blocking."""
    if address.kind == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            connection.connect(str(address.path))
        except BlockingIOError:
            await anyio.wait_writable(connection)  # its queue is full
            connection.connect(str(address.path))
        except BaseException:
            connection.close()
            raise
        return connection
    stream = await anyio.connect_tcp(address.host, address.port)
    raw: socket.socket = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 -- not Django's
    copy = socket.socket(fileno=os.dup(raw.fileno()))
    copy.setblocking(False)
    copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    copy.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    await stream.aclose()
    return copy


async def _upgrade(
    connection: socket.socket, tls: _Tls | None, host: str, container: str, api_version: str
) -> None:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_ANSWER_BYTES)
    request = h11.Request(
        method="POST",
        target=f"/v{api_version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1",
        headers=[("Host", host), ("Connection", "Upgrade"), ("Upgrade", "tcp"), ("Content-Length", "0")],
    )
    wrap: Callable[[bytes], bytes] = tls.encrypt if tls else bytes
    unwrap: Callable[[bytes], bytes] = tls.decrypt if tls else bytes
    await _send(connection, wrap((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")))
    body, status = b"", 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(unwrap(await _receive(connection)))
        elif isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            break
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body = (body + bytes(event.data))[:_ANSWER_BYTES]
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            raise EngineError("attach to the container", _message(body, status), status=status)
    if http.trailing_data[0]:
        raise EngineError("attach to the container", "it spoke before the container was started", status=101)


def _message(body: bytes, status: int) -> str:
    with suppress(ValueError):
        said = json.loads(body)
        if isinstance(said, dict) and said.get("message"):
            return str(said["message"])
    return f"it answered {status} instead of switching protocols: {body[:_LAST_WORDS]!r}"


async def _send(connection: socket.socket, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)


async def _receive(connection: socket.socket) -> bytes:
    while True:
        try:
            return connection.recv(_READ)
        except BlockingIOError:
            await anyio.wait_readable(connection)
