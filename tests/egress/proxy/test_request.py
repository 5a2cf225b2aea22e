"""The head of a request, in any pieces and of any bytes."""

from collections.abc import Sequence
from itertools import pairwise

import anyio
import pytest
from anyio.abc import ByteStream
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.http.rules import BadRequest
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.proxy.decision import Target, parse_target
from ringfence.egress.proxy.request import ProxyRequest, read_proxy_request

GET = b"GET http://A.example./x?y=1 HTTP/1.1\r\nHost: other\r\nX: 1\r\n\r\n"
PIECES = st.lists(st.sampled_from([
    b"GET ", b"CONNECT ", b"POST ", b"http://a.example", b"a.example:443", b"/", b" HTTP/1.1", b"\r\n", b"\n", b"\r",
    b"Host: a", b"Content-Length: 5", b"Transfer-Encoding: chunked", b": ", b" ", b"\t", b"\0", b"\xff", b"[::1]", b"@",
    b"%00", b"#", b"?", b"0x7f.1", b":99999",
]), max_size=12).map(b"".join)  # fmt: skip


class Pieces(ByteStream):
    """A connection on which these came."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """The next piece."""
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def send(self, item: bytes) -> None:
        """Nothing is sent."""

    async def send_eof(self) -> None:
        """Nothing is sent."""

    async def aclose(self) -> None:
        """Nothing is held."""


def read(*pieces: bytes, tunnel: Target | None = None) -> ProxyRequest | None:
    """The request that came in these pieces."""

    async def act() -> ProxyRequest | None:
        return await read_proxy_request(HttpConnection(Pieces(pieces)), 1, tunnel=tunnel)

    return anyio.run(act)


def test_a_request() -> None:
    """A request is for the host of its address, in its one spelling, whatever its Host says."""
    head = read(GET)
    assert head is not None
    assert head.target == Target("a.example", 80, "GET", "/x?y=1")


@given(cuts=st.lists(st.integers(0, len(GET)), max_size=8).map(sorted))
def test_in_any_pieces(cuts: list[int]) -> None:
    """However it comes, it means the same."""
    edges = [0, *cuts, len(GET)]
    head = read(*(GET[start:end] for start, end in pairwise(edges)))
    assert head is not None
    assert head.target == Target("a.example", 80, "GET", "/x?y=1")


@given(
    data=st.binary(max_size=200)
    | PIECES
    | PIECES.map(lambda rest: b"GET http://a.example/ HTTP/1.1\r\n" + rest)
)
def test_any_bytes(data: bytes) -> None:
    """Any bytes are a request for a host in its one spelling, or are refused."""
    try:
        head = read(data)
    except BadRequest:
        return
    assert (head is None) == (data == b"")
    if head is not None:
        assert 1 <= head.target.port <= 65_535
        assert b"\r\n\r\n" in data


@given(data=PIECES)
def test_any_request_in_a_tunnel(data: bytes) -> None:
    """In a tunnel nothing is for another host than the tunnel's."""
    tunnel = Target("a.example", 80)
    try:
        head = read(b"GET /x HTTP/1.1\r\n" + data, tunnel=tunnel)
    except BadRequest:
        return
    assert head is not None
    assert (head.target.host, head.target.port) == ("a.example", 80)


@pytest.mark.parametrize(
    "target",
    ["a.example:443", "a.example.:443", "[2001:db8::1]:443", "0x7f.1:443"],
)
def test_connect(target: str) -> None:
    """CONNECT means what `config policy explain` takes the same words for."""
    head = read(b"CONNECT " + target.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\nearly")
    assert head is not None
    assert head.target == parse_target(target)


@given(url=st.text(alphabet="ahtp:/.@[]?#%\\ 0x1\u00e9\0", max_size=30))
def test_any_address(url: str) -> None:
    """Any text is an address of a host in its one spelling, or is refused."""
    try:
        target = parse_target(url)
    except ValueError:
        return
    assert 1 <= target.port <= 65_535
    assert target.is_tunnel or target.path.startswith("/")
