"""A machine that reaches the web through a proxy of its own: so do its sandboxes, and its password stays outside."""

import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import h11
import msgspec
import pytest
import trustme
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.tls import TLSListener, TLSStream
from tests.egress.proxy.conftest import Gated, Record, Web, set_proxies, sh

from ringfence.egress.host_proxy import find_proxy, host_proxy_for
from ringfence.egress.resolver import Unreachable
from ringfence.egress.stream import TlsByteStream
from ringfence.egress.transfer import Transfer, transfer
from ringfence.events import EgressClosed, EgressDecided
from ringfence.secret import environment_secrets
from ringfence.testing.conformance.check import python

PASSWORD = "the-p%40ssword-of-the-proxy"
BASIC = "Basic " + b64encode(b"me:the-p@ssword-of-the-proxy").decode()


@dataclass
class Corporate:
    """A proxy that leads every name to the mirror."""

    web: Web
    port: int
    status: int = 200
    """What it answers to a CONNECT."""
    greeting: bytes = b""
    """What comes with that answer."""
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, target and credentials of each request."""

    @property
    def url(self) -> str:
        """What the machine's environment says."""
        return f"http://me:{PASSWORD}@127.0.0.1:{self.port}"

    async def serve(self, client: ByteStream) -> None:
        """One request."""
        async with client:
            http = h11.Connection(h11.SERVER)
            while not isinstance(asked := http.next_event(), h11.Request):
                http.receive_data(await client.receive())
            headers = {name.decode(): value.decode() for name, value in asked.headers}
            target = asked.target.decode()
            self.seen.append((asked.method.decode(), target, headers.get("proxy-authorization", "")))
            if self.status != 200 or asked.method != b"CONNECT":
                body = b"the proxy's own words\n"
                lines = (
                    b"HTTP/1.1 %d x",
                    b"Content-Length: %d",
                    b"Proxy-Authenticate: Basic",
                    b"Connection: close",
                )
                await client.send(b"\r\n".join(lines) % (self.status, len(body)) + b"\r\n\r\n" + body)
                return
            port = {"443": self.web.https, "80": self.web.http}.get(target.rpartition(":")[2], self.web.http)
            async with await anyio.connect_tcp("127.0.0.1", port) as host:
                await client.send(b"HTTP/1.1 200 OK\r\n\r\n" + self.greeting)
                await transfer(client, host, Transfer())


@asynccontextmanager
async def corporate(web: Web, authority: trustme.CA | None = None, **fields: Any) -> AsyncIterator[Corporate]:
    """The proxy, running; in TLS with a certificate of `authority`."""
    listener: Any = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    proxy = Corporate(web, listener.extra(SocketAttribute.local_port), **fields)
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        listener = TLSListener(listener, context)

    async def serve(client: ByteStream) -> None:
        try:
            await proxy.serve(TlsByteStream(client) if isinstance(client, TLSStream) else client)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, ssl.SSLError):
            return

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield proxy
        tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def nobody_to_ask(web: Web) -> None:
    """Behind such a proxy, names are often not to be looked up."""
    web.addresses = dict.fromkeys(("pypi.org", "git.example", "other.example"), ())


async def test_an_allowed_host_is_reached_through_it(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS ends at the host. The password is at the proxy, and neither inside nor in the record."""
    (web.root / "file").write_text("from the mirror")
    async with corporate(web) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with gated("pypi.org", with_mirror=False) as sandbox:
            said = await sh(sandbox, "curl -sS https://pypi.org/file; env")
            await record.reaches(1, EgressClosed)
    assert "from the mirror" in said
    assert proxy.seen == [("CONNECT", "pypi.org:443", BASIC)]
    (decided,) = record.of(EgressDecided)
    assert (decided.allowed, decided.through) == (True, f"http://127.0.0.1:{proxy.port}")
    told = said + json.dumps([msgspec.to_builtins(event) for event in record.events])
    assert not any(form in told for form in (PASSWORD, "the-p@ssword", BASIC.removeprefix("Basic ")))


async def test_plain_requests_go_through_it_whole(
    web: Web, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As proxies want them; what those inside sent it as credentials goes no further."""
    async with corporate(web) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with gated("git.example", with_mirror=False) as sandbox:
            said = await sh(
                sandbox, "curl -sS -H 'Proxy-Authorization: Basic mine' 'http://git.example/a?b=c'"
            )
    assert said == "the proxy's own words\n"
    assert proxy.seen == [("GET", "http://git.example/a?b=c", BASIC)]


ADDRESSES = ["10.0.0.5", "169.254.169.254", "127.0.0.1", "[fd00::1]", "0x7f.1", "2130706433"]


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_private_addresses_stay_refused(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """Written out in any spelling, where all public hosts are open; the proxy is not asked."""
    web.addresses |= {one.strip("[]"): (one.strip("[]"),) for one in ADDRESSES[:4]}
    asked = "; ".join(f"curl -sS --noproxy '' {scheme}://{one}/" for one in ADDRESSES)
    async with corporate(web) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with gated("open", with_mirror=False) as sandbox:
            await sh(sandbox, asked)
    assert {event.allowed for event in record.of(EgressDecided)} == {False}
    assert len(record.of(EgressDecided)) == len(ADDRESSES)
    assert proxy.seen == []


async def test_a_name_that_leads_inwards_from_here_is_refused(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever this machine can look it up, the proxy is not asked where it leads."""
    web.addresses["git.example"] = ("93.184.215.14", "10.0.0.5")
    async with corporate(web) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with gated("git.example", with_mirror=False) as sandbox:
            await sh(sandbox, "curl -sS https://git.example/")
    assert [event.rule for event in record.of(EgressDecided)] == ["private-address"]
    assert proxy.seen == []


async def test_where_all_is_open_a_name_must_be_known_here(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else anybody's name could lead inwards at the proxy; it can be allowed by name."""
    async with corporate(web) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with gated("open", with_mirror=False) as sandbox:
            await sh(sandbox, "curl -sS https://other.example/")
    (decided,) = record.of(EgressDecided)
    assert (decided.allowed, decided.rule) == (False, "open")
    assert "--allow other.example" in decided.remedy
    assert proxy.seen == []


async def test_where_the_proxy_leads_a_name_is_not_seen(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of it: this name was allowed, is not known here, and the proxy leads it to a private address."""
    async with corporate(web) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with gated("git.example", with_mirror=False) as sandbox:
            said = await sh(
                sandbox, "curl -sS -o /dev/null -w '%{remote_ip} %{http_code}' https://git.example/"
            )
    assert said == "127.0.0.1 200"
    (decided,) = record.of(EgressDecided)
    assert (decided.address, decided.through) == ("", f"http://127.0.0.1:{proxy.port}")


async def test_exceptions_of_the_environment_hold(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What NO_PROXY names is called directly, at the address that was checked."""
    web.addresses.clear()
    async with corporate(web) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", ".example")
        async with gated("git.example") as sandbox:
            said = await sh(sandbox, "curl -sS -o /dev/null -w '%{http_code}' https://git.example/")
    (decided,) = record.of(EgressDecided)
    assert (said, decided.through, decided.address) == ("200", "", f"127.0.0.1:{web.https}")
    assert proxy.seen == []


@pytest.mark.parametrize(
    ("status", "told"), [(407, "requires another user or password (407)"), (403, "refuses it (403)")]
)
async def test_what_the_proxy_refuses_is_told(
    web: Web, gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch, status: int, told: str
) -> None:
    """Inside it is a host that cannot be reached: nobody there is asked for the machine's password."""
    async with corporate(web, status=status) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        async with gated("git.example", with_mirror=False) as sandbox:
            said = await sh(sandbox, "curl -sS -i https://git.example/; curl -sS -i http://git.example/")
            closed = await record.reaches(2, EgressClosed)
    assert "407" not in {line.split()[1] for line in said.splitlines() if line.startswith("HTTP/")}
    assert f"this machine's proxy http://127.0.0.1:{proxy.port} {told}" in closed[0].ended_by
    assert "the proxy's own words" not in said or status == 403
    assert PASSWORD not in said


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("socks5://me:sesame-sesame@127.0.0.1:9", "this machine's proxy is one of kind 'socks5'"),
        ("http://me:sesame-sesame@127.0.0.1:9", "this machine's proxy http://127.0.0.1:9 cannot be reached"),
        ("http://me:sesame-sesame@127.0.0.1:port", "the proxy address in this machine's environment is not valid"),
    ],
)  # fmt: skip
async def test_a_proxy_that_cannot_be_used_is_not_gone_round(
    gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch, url: str, told: str
) -> None:
    """And the reason does not hold its password."""
    monkeypatch.setenv("HTTPS_PROXY", url)
    async with gated("git.example") as sandbox:
        await sh(sandbox, "curl -sS https://git.example/")
        (closed,) = await record.reaches(1, EgressClosed)
    assert told in closed.ended_by
    assert "sesame" not in closed.ended_by


async def test_a_proxy_is_spoken_to_in_tls_where_it_says_so(
    web: Web, gated: Gated, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its certificate is verified: by another authority it gets no password."""
    (web.root / "file").write_text("from the mirror")
    said = []
    bundle = tmp_path_factory.mktemp("authority") / "authority.pem"
    web.authority.cert_pem.write_to_path(str(bundle))
    for authority in (web.authority, trustme.CA()):
        async with corporate(web, authority) as proxy:
            monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
            monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("http:", "https:"))
            async with gated("pypi.org", with_mirror=False) as sandbox:
                said.append((await sh(sandbox, "curl -sS https://pypi.org/file"), len(proxy.seen)))
    assert said[0] == ("from the mirror", 1)
    assert (said[1][1], "exit " in said[1][0]) == (0, True)


async def test_a_host_that_speaks_first_is_heard(
    web: Web, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes together with the proxy's answer belongs to the tunnel."""
    code = """
import socket
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT git.example:2222 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
data = b""
while b"welcome" not in data:
    data += s.recv(4096)
print(data.splitlines()[-1].decode())
"""
    async with corporate(web, greeting=b"welcome") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        async with gated("git.example:2222", with_mirror=False) as sandbox:
            result = await python(sandbox, code)
    assert result.stdout == "welcome\n", result.stderr
    assert proxy.seen[0][:2] == ("CONNECT", "git.example:2222")


def test_a_password_is_not_in_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the proxy, by any of its names."""
    set_proxies(monkeypatch, {"HTTPS_PROXY": "https://me:sesame@[::1]:3128"})
    proxy = host_proxy_for("https://a.example")
    assert proxy is not None
    assert (proxy.shown, "sesame" in repr(proxy), "bWU6c2VzYW1l" in repr(proxy)) == (
        "https://[::1]:3128",
        False,
        False,
    )
    assert proxy.authorization == b"Basic bWU6c2VzYW1l"


def test_a_password_is_redacted_with_or_without_a_scheme() -> None:
    """As the environment may name a proxy either way."""
    environ = {"HTTPS_PROXY": "http://me:sesame-one@p:1", "http_proxy": "me:sesame-two@p:1"}
    assert set(environment_secrets(environ)) == {"sesame-one", "sesame-two"}


def test_without_a_proxy_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for this machine."""
    set_proxies(monkeypatch, {})
    assert find_proxy("https://a.example") is None
    monkeypatch.setenv("HTTPS_PROXY", "p:1")
    assert find_proxy("https://127.0.0.1") is None
    set_proxies(monkeypatch, {"ALL_PROXY": "socks5://p:1"})
    with pytest.raises(Unreachable, match="kind 'socks5'"):
        host_proxy_for("https://a.example")
