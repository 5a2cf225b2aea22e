"""The client's side of HTTP/1.1 on a connection to the outside, for one request."""

from collections.abc import Callable

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.egress.http.rules import HEAD_LIMIT_BYTES

_READ_BYTES = 64 * 1024


class ClientConnection:
    """Sends one request and reads its response.

    Errors of the stream and of h11 (`RemoteProtocolError`: the response is not HTTP/1.1) are raised as they are.

    Args:
        stream: The connection.
        on_received: Called with the number of bytes of each piece that is received.
    """

    def __init__(self, stream: ByteStream, *, on_received: Callable[[int], None] | None = None) -> None:
        self.stream = stream
        self._on_received = on_received
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)

    async def send(self, *events: h11.Event) -> int:
        """Send parts of the request; return how many bytes they are."""
        data = b"".join(self._http.send(event) or b"" for event in events)
        if data:
            await self.stream.send(data)
        return len(data)

    async def receive(self) -> h11.Event:
        """Return the next part of the response.

        Raises:
            h11.RemoteProtocolError: There is none, as the connection ended or is no longer HTTP.
        """
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                data = await self.stream.receive(_READ_BYTES)
            except anyio.EndOfStream:
                data = b""
            if self._on_received is not None:
                self._on_received(len(data))
            self._http.receive_data(data)
        if not isinstance(event, h11.Event) or isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("the connection ended before the response")
        return event

    async def receive_head(self) -> h11.Response:
        """Return the head of the final response."""
        while not isinstance(event := await self.receive(), h11.Response):
            pass
        return event

    @property
    def rest(self) -> bytes:
        """The bytes that were received after the response, of another protocol."""
        return bytes(self._http.trailing_data[0])
