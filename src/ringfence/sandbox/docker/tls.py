"""TLS on a connection of an engine: bytes in, bytes out, without a task of its own."""

import socket
import ssl

import anyio

from ringfence.sandbox.protocol.records import ProtocolError

_READ = 64 * 1024


class Tls:
    """TLS without a task of its own: bytes in, bytes out."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    async def shake_hands(self, connection: socket.socket) -> None:
        """Make the connection secure.

        Raises:
            OSError: The other side is not who it should be, or goes.
        """
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                await send(connection, self._outgoing.read())
                data = await receive(connection)
                if not data:
                    raise ConnectionResetError(
                        "the engine closed the connection during the TLS handshake"
                    ) from None
                self._incoming.write(data)
            else:
                await send(connection, self._outgoing.read())
                return

    def encrypt(self, data: bytes) -> bytes:
        """What is sent for `data`."""
        self._object.write(data)
        return self._outgoing.read()

    def decrypt(self, data: bytes) -> bytes:
        """What was said in bytes that came; may be nothing.

        Raises:
            ProtocolError: They are damaged.
        """
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


async def send(connection: socket.socket, data: bytes) -> None:
    """Send all of `data` on a non-blocking connection."""
    view = memoryview(data)
    while view:
        try:
            view = view[connection.send(view) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)


async def receive(connection: socket.socket) -> bytes:
    """The next bytes from a non-blocking connection; none at its end."""
    while True:
        try:
            return connection.recv(_READ)
        except BlockingIOError:
            await anyio.wait_readable(connection)
