"""Time-stamps of a real authority, and of ones that are not to be believed."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integrations.attestation.time_stamp_authority import Authority, Server, query, serving

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.integrations.attestation import timestamp
from ringfence.integrations.attestation.timestamp import (
    TimestampRefused,
    check_server,
    read_certificates,
    request_timestamp,
    verify_timestamp,
)

pytest.importorskip("rfc3161_client", reason="the extra `attest` is not installed")
ENVELOPE = b'{"payload":"e30="}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of an authority of its own."""
    with serving(Server(Authority(tmp_path / "tsa"))) as served:
        yield served


async def request(server: Server, envelope: bytes = ENVELOPE) -> timestamp.Timestamp:
    """Request a time-stamp, and trust the server's authority."""
    return await request_timestamp(envelope, server.url, read_certificates(server.authority.root))


async def test_stamped(server: Server):
    """A time-stamp has the server's time and name, and is verified offline afterwards."""
    stamped = await request(server)
    assert abs(stamped.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert stamped.server == "CN=time-stamp server"
    again = verify_timestamp(ENVELOPE, stamped.response, read_certificates(server.authority.root))
    assert again == stamped


async def test_other_envelope(server: Server):
    """A time-stamp of one envelope is none of another."""
    stamped = await request(server)
    with pytest.raises(TimestampRefused, match="not valid for this envelope"):
        verify_timestamp(b"another", stamped.response, read_certificates(server.authority.root))


async def test_each_changed_byte(server: Server):
    """No byte of a token's signed part can be changed."""
    stamped = await request(server)
    authorities = read_certificates(server.authority.root)
    response = bytearray(stamped.response)
    for place in range(0, len(response), 7):
        changed = bytes(response[:place] + bytes([response[place] ^ 0x55]) + response[place + 1 :])
        try:
            found = verify_timestamp(ENVELOPE, changed, authorities)
        except TimestampRefused:
            continue
        # What is outside of the signed part (an embedded certificate that is not needed) proves nothing else.
        assert found.time == stamped.time


async def test_other_authority(server: Server, tmp_path: Path):
    """A server that none of the given certificates vouches for is not believed."""
    other = Authority(tmp_path / "other")
    with pytest.raises(TimestampRefused):
        await request_timestamp(ENVELOPE, server.url, read_certificates(other.root))


async def test_certificate_that_had_expired(tmp_path: Path):
    """A certificate that was not valid at the time in the token makes no time-stamp."""
    expired = Server(Authority(tmp_path / "tsa", days=-1))
    with serving(expired), pytest.raises(TimestampRefused, match="certificate"):
        await request(expired)


async def test_replayed_response(server: Server):
    """A response to another request for the same envelope has another nonce, and is refused."""
    old = server.authority.reply(query(ENVELOPE))
    server.body = old
    with pytest.raises(TimestampRefused, match="Nonce"):
        await request(server)


async def test_wrong_digest(server: Server):
    """A response for other data is refused."""
    other = server.authority.reply(query(b"other data"))
    server.body = other
    with pytest.raises(TimestampRefused):
        await request(server)


async def test_not_granted(server: Server):
    """A server that rejects a request is quoted."""
    server.digests = "sha512"
    with pytest.raises(TimestampRefused, match="refused with status 2"):
        await request(server)


async def test_redirect(server: Server):
    """A redirect is not followed."""
    server.status, server.headers = 302, {"Location": "http://127.0.0.1:1/"}
    with pytest.raises(InfrastructureFault, match="redirect"):
        await request(server)


@pytest.mark.parametrize(
    ("status", "kind"), [(500, "application/timestamp-reply"), (200, "text/html")], ids=["status", "type"]
)
async def test_answer_that_is_no_time_stamp(server: Server, status: int, kind: str):
    """Only a response with status 200 and the type of time-stamps is read."""
    server.status, server.kind = status, kind
    with pytest.raises(InfrastructureFault, match="no time-stamp"):
        await request(server)


async def test_huge_answer(server: Server):
    """A response is read up to 64 KiB."""
    server.body = b"x" * 50_000_000
    with pytest.raises(InfrastructureFault, match="more than 65536 bytes"):
        await request(server)


async def test_hanging_server(server: Server, monkeypatch: pytest.MonkeyPatch):
    """A server that does not answer is given up."""
    monkeypatch.setattr(timestamp, "_TIMEOUT_S", 0.3)
    server.is_hanging = True
    with pytest.raises(InfrastructureFault, match="did not answer within"):
        await request(server)


async def test_noise(server: Server):
    """Bytes that are no response are refused in one line."""
    server.body = b"x" * 100
    with pytest.raises(TimestampRefused, match="no response of a time-stamp server"):
        await request(server)


@pytest.mark.parametrize("url", ["ftp://a/", "https://", "https://user:pw@a/", "file:///etc/passwd", ""])
def test_server_that_is_none(url: str):
    """Only URLs of HTTP without a user name name a server."""
    with pytest.raises(UsageError) as raised:
        check_server(url)
    assert "pw" not in str(raised.value)


def test_certificates_that_are_none(tmp_path: Path):
    """A file without a certificate is refused before anything is sent."""
    (tmp_path / "empty.pem").write_text("nothing")
    for file in (tmp_path / "absent.pem", tmp_path / "empty.pem"):
        with pytest.raises(UsageError, match=r"PEM|cannot be read"):
            read_certificates(file)
