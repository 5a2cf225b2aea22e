"""The server's name in the first message of TLS, as real clients write it and as an attacker might."""

import ssl
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.proxy.tunnel import HELLO_LIMIT_BYTES, HelloReader, NotTls

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


def read(*pieces: bytes) -> str | None:
    """The server name in these pieces, of which only the last one completes the message."""
    reader = HelloReader()
    assert [reader.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    return reader.server_name


def test_real() -> None:
    """The name that a real client requests is found, or that it requests none."""
    assert read(real("pypi.org")) == "pypi.org"
    assert read(real(None)) is None


@given(size=st.integers(1, 600))
def test_over_many_records(size: int) -> None:
    """It is found however the message is cut into records."""
    assert read(recut(real("pypi.org"), size)) == "pypi.org"


def test_byte_by_byte() -> None:
    """Until it is complete, more is needed; never is a part taken for the whole."""
    hello = recut(real("pypi.org"), 100)
    assert read(*(hello[at : at + 1] for at in range(len(hello)))) == "pypi.org"
    assert read(hello + b"more") == "pypi.org"


def test_an_old_version() -> None:
    """The name counts, too, in what only speaks TLS 1.0."""
    hello = with_extensions(named(b"a.example"))
    assert read(hello.replace(b"\3\3" + bytes(32), b"\3\1" + bytes(32))) == "a.example"


@pytest.mark.parametrize("extension", [(0xFE0D, b"x"), (0x0A0A, b""), (0xFFCE, b"x" * 100)])
def test_extensions_that_are_not_known(extension: tuple[int, bytes]) -> None:
    """An encrypted ClientHello and what is sent at random hide nothing: the name that can be seen decides."""
    assert read(with_extensions(named(b"a.example"), extension)) == "a.example"


HOSTILE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "ssh": b"SSH-2.0-x\r\n",
    "old TLS": b"\x80\x2e\1\3\1",
    "another record": b"\x17\3\3\0\5hello",
    "huge record": b"\x16\3\1\xff\xff",
    "another message": b"\x16\3\1\0\4\2\0\0\0",
    "huge message": b"\x16\3\1\0\4\1\xff\xff\xff",
    "two names": with_extensions(named(b"a.example", b"b.example")),
    "two name lists": with_extensions(named(b"a.example"), named(b"b.example")),
    "no ascii": with_extensions(named(b"\xff")),
    "cut off": b"\x16\3\1\0\6\1\0\0\2\3\3",
    "more than is looked at": recut(b"\x16\3\1\0\0\1" + (60_000).to_bytes(3) + bytes(30_000), 1),
    "a name with NUL": with_extensions(named(b"a\0b")),
    "a name of 300 characters": with_extensions(named(b"a" * 300)),
    "no name in the list": with_extensions((0, b"")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name: str) -> None:
    """What is no ClientHello, or one with two meanings, is refused."""
    with pytest.raises(NotTls):
        HelloReader().feed(HOSTILE[name])


@pytest.mark.parametrize("name", [b"\xff", b"\xc3\xa4.example"])
def test_a_name_that_is_not_ascii_is_refused_in_silence(
    name: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever is inside must not be able to write to the terminal of the host."""
    with pytest.raises(NotTls):
        HelloReader().feed(with_extensions(named(name)))
    assert capfd.readouterr() == ("", "")


INCOMPLETE = {
    "an empty record": b"\x16\3\1\0\0",
    "half a message": b"\x16\3\1\0\6\1\0\0\x40\3\3",
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_what_is_not_complete_needs_more(name: str) -> None:
    """Until the bound, or the deadline of the tunnel."""
    reader = HelloReader()
    assert not reader.feed(INCOMPLETE[name])
    with pytest.raises(NotTls):
        reader.feed(bytes(HELLO_LIMIT_BYTES))


def test_bound() -> None:
    """A ClientHello in crumbs is given up at the bound."""
    reader, message = HelloReader(), b"\1" + (60_000).to_bytes(3) + bytes(60_000)
    crumbs = [b"\x16\3\1\0\1" + message[at : at + 1] for at in range(HELLO_LIMIT_BYTES // 6)]
    assert not any(reader.feed(crumb) for crumb in crumbs)
    with pytest.raises(NotTls, match="longer"):
        reader.feed(bytes(6))


@given(data=st.binary(max_size=300) | st.binary(max_size=200).map(lambda rest: real("a.example")[:90] + rest))
def test_any_bytes(data: bytes) -> None:
    """Any bytes are refused, need more, or are read; nothing else happens."""
    try:
        is_read = HelloReader().feed(data)
    except NotTls:
        return
    assert not is_read or data.startswith(b"\x16")
