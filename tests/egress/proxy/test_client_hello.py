"""The server's name in the first message of TLS, as real clients write it and as an attacker might."""

import ssl
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.proxy.client_hello import ClientHello, HelloReader, NotTls, is_tls

_HEAD = 5


@cache
def real(name: str | None) -> bytes:
    """What OpenSSL sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def recut(hello: bytes, size: int) -> bytes:
    """The same message in records of so many bytes."""
    message = hello[_HEAD:]
    pieces = [message[place : place + size] for place in range(0, len(message), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def with_extensions(*extensions: tuple[int, bytes]) -> bytes:
    """A ClientHello that holds these."""
    listed = b"".join(kind.to_bytes(2) + len(value).to_bytes(2) + value for kind, value in extensions)
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + len(listed).to_bytes(2) + listed
    message = b"\1" + len(body).to_bytes(3) + body
    return b"\x16\3\1" + len(message).to_bytes(2) + message


def named(*names: bytes) -> tuple[int, bytes]:
    """The extension that names servers."""
    listed = b"".join(b"\0" + len(name).to_bytes(2) + name for name in names)
    return 0, len(listed).to_bytes(2) + listed


def test_real() -> None:
    """The name that a real client asks for is found, or that it asks for none."""
    assert HelloReader().feed(real("pypi.org")) == ClientHello("pypi.org")
    assert HelloReader().feed(real(None)) == ClientHello(None)


@given(size=st.integers(1, 600))
def test_over_many_records(size: int) -> None:
    """It is found however the message is cut into records."""
    assert HelloReader().feed(recut(real("pypi.org"), size)) == ClientHello("pypi.org")


def test_byte_by_byte() -> None:
    """Until it is whole, more is wanted; never is a part taken for the whole."""
    hello = recut(real("pypi.org"), 100)
    assert all(HelloReader().feed(hello[:end]) is None for end in range(len(hello)))
    assert HelloReader().feed(hello + b"more") == ClientHello("pypi.org")


def test_crumbs_take_no_more_time() -> None:
    """A message in records and pieces of one byte each is read once, not once for each of them."""
    reader, looked = HelloReader(), 0
    message = b"\1" + (60_000).to_bytes(3) + bytes(60_000)
    for place in range(10_000):
        assert reader.feed(b"\x16\3\1\0\1" + message[place : place + 1]) is None
        looked += len(reader._rest)
    assert looked == 0
    assert len(reader._message) == 10_000


def test_encrypted_hello_is_seen() -> None:
    """An encrypted ClientHello is noted, beside the name that can be seen."""
    assert HelloReader().feed(with_extensions(named(b"a.example"), (0xFE0D, b"x"))) == ClientHello(
        "a.example", True
    )


HOSTILE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "ssh": b"SSH-2.0-x\r\n",
    "old TLS": b"\x80\x2e\1\3\1",
    "another record": b"\x17\3\3\0\5hello",
    "empty record": b"\x16\3\1\0\0",
    "huge record": b"\x16\3\1\xff\xff",
    "another message": b"\x16\3\1\0\4\2\0\0\0",
    "huge message": b"\x16\3\1\0\4\1\xff\xff\xff",
    "two names": with_extensions(named(b"a.example", b"b.example")),
    "two name lists": with_extensions(named(b"a.example"), named(b"b.example")),
    "no ascii": with_extensions(named(b"\xff")),
    "cut off": b"\x16\3\1\0\6\1\0\0\2\3\3",
    "more than is looked at": recut(b"\x16\3\1\0\0\1" + (60_000).to_bytes(3) + bytes(30_000), 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name: str) -> None:
    """What is no ClientHello, or one with two meanings, is refused."""
    with pytest.raises(NotTls):
        HelloReader().feed(HOSTILE[name])


@given(data=st.binary(max_size=300) | st.binary(max_size=200).map(lambda rest: real("a.example")[:90] + rest))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are refused, wanted more of, or read; nothing else happens."""
    try:
        hello = HelloReader().feed(data)
    except NotTls:
        return
    assert hello is None or is_tls(data)
