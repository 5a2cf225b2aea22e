"""One rule about line ends, wherever a head is read: by the model gateway and by the forward proxy."""

from collections.abc import Sequence

import anyio
import pytest
from anyio.abc import ByteStream

from ringfence.egress.proxy import head
from ringfence.egress.reading import RequestReader, Unreadable

HOST = b"Host: a.example"
HOSTILE = {
    "line-feed": HOST + b"\nX: y\r\n\r\n",
    "carriage-return": HOST + b"\rX: y\r\n\r\n",
    "carriage-return-in-a-value": b"X: a\rb\r\n\r\n",
    "two-carriage-returns": HOST + b"\r\r\n\r\n",
    "continued": HOST + b"\r\n X: y\r\n\r\n",
    "continued-by-a-tab": HOST + b"\r\n\tX: y\r\n\r\n",
}


class Piece(ByteStream):
    """A connection on which one piece came."""

    def __init__(self, data: bytes) -> None:
        self._left: Sequence[bytes] = [data]

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """The piece, once."""
        if not self._left:
            raise anyio.EndOfStream
        (data,), self._left = self._left, ()
        return data

    async def send(self, item: bytes) -> None:
        """Nothing is sent."""

    async def send_eof(self) -> None:
        """Nothing is sent."""

    async def aclose(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("name", HOSTILE)
def test_the_gateway_refuses_it(name: str) -> None:
    """The reader of requests to models takes no line end that another reader could take differently."""
    with pytest.raises(Unreadable) as refused:
        RequestReader(lambda _: None).feed(b"POST /v1/messages HTTP/1.1\r\n" + HOSTILE[name])
    assert refused.value.status == 400


@pytest.mark.parametrize("name", HOSTILE)
async def test_the_proxy_refuses_it(name: str) -> None:
    """Nor does the reader of requests to hosts."""
    with pytest.raises(head.Unreadable) as refused:
        await head.read_head(Piece(b"GET http://a.example/ HTTP/1.1\r\n" + HOSTILE[name]))
    assert refused.value.status == 400
