"""The attached stream of a container: an upgraded HTTP connection, and the headers the engine puts on it.

The connection itself is what the sandbox reads and writes: no task stands between. The engine's answer (101) must
be there before the container is started, else what it says first is lost.
"""

import errno
import json
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import h11

from ringfence.sandbox.docker.address import Address
from ringfence.sandbox.docker.client import EngineError
from ringfence.sandbox.docker.tls import Tls, receive, send
from ringfence.sandbox.protocol.records import ProtocolError

_CONNECT_S = 20.0
_RETRY_S = 0.005
_ANSWER_BYTES = 64 * 1024
_READ = 64 * 1024
_QUOTED = 500
_SEND_BUFFER = 1024 * 1024


_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR = 1, 2
_LARGEST = 16 * 1024 * 1024
_LAST_WORDS = 4096


class Demultiplexer:
    """Takes the engine's headers off a container's output: stdout is passed on, the end of stderr is kept.

    Docker Engine API, "ContainerAttach", stream format: 8 bytes before each piece of stdout or stderr, namely the kind,
    three zeros, and the length, big-endian.
    """

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


class Attached:
    """One attached container. Owns its connection; `close` it."""

    def __init__(self, connection: socket.socket, tls: Tls | None) -> None:
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

    def hang_up(self) -> None:
        """Let the engine see that nobody takes anything more; the descriptor stays."""
        with suppress(OSError):  # it has gone by itself
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection: the container's stdin ends with it."""
        self._connection.close()


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
                tls = Tls(address.tls.context(), address.host)
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
        connection = await _connected(socket.AF_UNIX, str(address.path))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        return connection
    problem: OSError = OSError(f"no address of {address.host!r} is known")
    for family, _, _, _, place in await anyio.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        try:
            connection = await _connected(family, place)
        except OSError as exc:
            problem = exc
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection
    raise problem


async def _connected(family: int, place: Any) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        number = connection.connect_ex(place)
        while number == errno.EAGAIN:  # a Unix socket whose queue is full
            await anyio.sleep(_RETRY_S)
            number = connection.connect_ex(place)
        if number == errno.EINPROGRESS:
            await anyio.wait_writable(connection)
            number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
    except BaseException:
        connection.close()
        raise
    return connection


async def _upgrade(
    connection: socket.socket, tls: Tls | None, host: str, container: str, api_version: str
) -> None:
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_ANSWER_BYTES)
    request = h11.Request(
        method="POST",
        target=f"/v{api_version}/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1",
        headers=[("Host", host), ("Connection", "Upgrade"), ("Upgrade", "tcp"), ("Content-Length", "0")],
    )
    wrap: Callable[[bytes], bytes] = tls.encrypt if tls else bytes
    unwrap: Callable[[bytes], bytes] = tls.decrypt if tls else bytes
    await send(connection, wrap((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")))
    body, status = b"", 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            data = await receive(connection)
            if not data:
                raise ConnectionResetError("the engine closed the connection")
            if plain := unwrap(data):  # TLS has words of its own, and nothing is the end to h11
                http.receive_data(plain)
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
    return f"it answered {status} instead of switching protocols: {body[:_QUOTED]!r}"
