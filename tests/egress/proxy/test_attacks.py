"""What somebody inside might try on the proxy, from a real sandbox: nothing leads out, and each is in the record."""

import ipaddress
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest
from dnslib import CNAME, QTYPE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSServer
from tests.cases import slow_after, slow_but
from tests.egress.proxy.conftest import NAMES, Gated, Record, Web, sh

from ringfence.egress.resolver import Resolved
from ringfence.events import EgressClosed, EgressDecided, ForwardOpened, ForwardRefused
from ringfence.sandbox import Sandbox
from ringfence.testing.conformance.check import python

SAY = """
import json, socket, sys
answers = []
for request in sys.argv[2:]:
    s = socket.create_connection(("127.0.0.1", 3128), timeout=40)
    said = b""
    try:
        s.sendall(bytes.fromhex(request))
        if sys.argv[1] == "end":
            s.shutdown(socket.SHUT_WR)
        while piece := s.recv(65536):
            said += piece
    except OSError as error:
        said += b" " + type(error).__name__.encode()
    answers.append(said.decode("latin-1"))
print(json.dumps(answers))
"""
"""Sends bytes to the proxy, each of a connection of their own, and prints what comes back until the end."""


async def say(sandbox: Sandbox, data: bytes, *, then_end: bool = False) -> str:
    """What the proxy answers to these bytes."""
    (answer,) = await say_each(sandbox, [data], then_end=then_end)
    return answer


async def say_each(sandbox: Sandbox, requests: Sequence[bytes], *, then_end: bool = False) -> list[str]:
    """What the proxy answers to each, one after the other, by one program inside."""
    result = await python(
        sandbox, SAY, "end" if then_end else "stay", *(request.hex() for request in requests)
    )
    assert result.ok, result.stderr
    return [str(answer) for answer in json.loads(result.stdout)]


def refusals(record: Record) -> list[tuple[str, str]]:
    """Host and rule of what was refused."""
    return [(event.host, event.rule) for event in record.of(EgressDecided) if not event.allowed]


def own_address() -> str:
    """An address of this machine besides loopback, or loopback where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


SPELLINGS = {
    "127.1": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "[::ffff:127.0.0.1]": "127.0.0.1",
    "localhost.": "localhost",
    "LOCALHOST": "localhost",
    "[::1]": "[::1]",
    "0.0.0.0": "0.0.0.0",
    "169.254.169.254": "169.254.169.254",
    "[::ffff:169.254.169.254]": "169.254.169.254",
    "metadata.google.internal.": "metadata.google.internal",
}


async def test_spellings(gated: Gated, record: Record, backend: dict[str, Any]) -> None:
    """No spelling of loopback, of metadata services or of this machine's own addresses gets by, where all is open."""
    hosts = {**SPELLINGS, own_address(): own_address()}
    async with gated("open", with_mirror=False, **backend) as sandbox:
        requests = [
            request
            for host in hosts
            for request in (
                f"CONNECT {host}:8080 HTTP/1.1\r\nHost: git.example\r\n\r\n",
                f"GET http://{host}/ HTTP/1.1\r\nHost: pypi.org\r\n\r\n",
            )
        ]
        answers = await say_each(sandbox, [request.encode() for request in requests])
    for request, said in zip(requests, answers, strict=True):
        assert said.startswith("HTTP/1.1 403 ringfence: "), (request, said)
    assert {host for host, _ in refusals(record)} == set(hosts.values())
    assert {rule for _, rule in refusals(record)} <= {"never", "private-address"}


@pytest.mark.parametrize(
    "address", slow_after(2, ["10.0.0.1", "127.0.0.2", "169.254.169.254", "224.0.0.1", "::1", "fe80::1"])
)
async def test_name_that_leads_inwards(gated: Gated, web: Web, record: Record, address: str) -> None:
    """An allowed name is refused that resolves to a private address, also beside a public one."""
    web.addresses["a.example"] = ("93.184.216.34", address)
    async with gated("a.example") as sandbox:
        said = await say(sandbox, b"CONNECT a.example:8081 HTTP/1.1\r\nHost: git.example\r\n\r\n")
        assert said.startswith("HTTP/1.1 403"), said
        said = await say(sandbox, b"GET http://a.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n")
    assert said.startswith("HTTP/1.1 403"), said
    assert all(not event.allowed for event in record.of(EgressDecided))
    assert record.of(EgressClosed) == []


class _Liar(BaseResolver):  # type: ignore[misc]
    """Gives another answer each time; a CNAME with it."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def resolve(self, request: Any, _handler: Any) -> Any:
        reply = request.reply()
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        reply.add_answer(RR(request.q.qname, QTYPE.CNAME, rdata=CNAME("inner.example"), ttl=0))
        reply.add_answer(RR("inner.example", QTYPE.A, rdata=A(answer), ttl=0))
        return reply


@asynccontextmanager
async def lying_dns(web: Web, answers: Sequence[str]) -> AsyncIterator[_Liar]:
    """A DNS server that lies, and is asked for every name."""
    liar = _Liar(answers)
    server = DNSServer(liar, address="127.0.0.1", port=0, logger=_Silent())
    port = server.server.server_address[1]
    server.start_thread()

    def ask(host: str) -> list[str]:
        reply = DNSRecord.parse(DNSRecord.question(host).send("127.0.0.1", port, timeout=10))
        return [str(one.rdata) for one in reply.rr if one.rtype == QTYPE.A]

    async def resolve(host: str, port: int) -> Sequence[Resolved]:
        web.addresses[host] = await anyio.to_thread.run_sync(ask, host)
        return [
            Resolved(ipaddress.ip_address(one), {80: web.http, 443: web.https}.get(port, port))
            for one in web.addresses[host]
        ]

    web.resolve = resolve  # type: ignore[method-assign]
    try:
        yield liar
    finally:
        server.stop()
        server.server.server_close()


class _Silent:
    """Logs nothing."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_words, **_named: None


@pytest.mark.slow
async def test_rebinding(gated: Gated, web: Web, record: Record) -> None:
    """A name that turns between the check and the connection leads to what was checked: it is looked up once."""
    (web.root / "file").write_text("the mirror")
    async with lying_dns(web, ["127.0.0.1", "10.0.0.1"]) as liar, gated("a.example") as sandbox:
        said = await say(sandbox, b"GET http://a.example/file HTTP/1.1\r\nHost: git.example\r\n\r\n")
        assert said.endswith("the mirror"), said
        assert liar.asked == 1
        said = await say(sandbox, b"GET http://a.example/file HTTP/1.1\r\nHost: git.example\r\n\r\n")
    assert said.startswith("HTTP/1.1 403"), said
    assert [event.address for event in record.of(EgressDecided)] == [f"127.0.0.1:{web.http}", ""]


async def test_rebinding_of_a_tunnel(gated: Gated, web: Web, record: Record) -> None:
    """The tunnel of a CONNECT leads to the address that was judged, though the next answer is another one."""
    (web.root / "file").write_text("the mirror")
    async with lying_dns(web, ["127.0.0.1", "10.0.0.1"]) as liar, gated("git.example") as sandbox:
        said = await sh(sandbox, "curl -sS https://git.example/file")
        assert said == "the mirror"
        assert liar.asked == 1
        said = await sh(sandbox, "curl -sS https://git.example/file")
    assert "403" in said, said
    assert [event.address for event in record.of(EgressDecided)] == [f"127.0.0.1:{web.https}", ""]


async def test_rebinding_of_a_forward(gated: Gated, web: Web, record: Record) -> None:
    """A forward leads to the address that was judged, and its name is judged anew for each connection."""
    (web.root / "file").write_text("the mirror")
    call = f"curl -sS --noproxy '*' http://git.example:{web.http}/file"
    answers = ["127.0.0.1", "169.254.169.254"]
    async with (
        lying_dns(web, answers) as liar,
        gated("other.example", forward=(f"git.example:{web.http}",)) as sandbox,
    ):
        assert await sh(sandbox, call) == "the mirror"
        assert liar.asked == 1
        await sh(sandbox, call)
    (opened,) = record.of(ForwardOpened)
    (refused,) = record.of(ForwardRefused)
    assert opened.address == f"127.0.0.1:{web.http}"
    assert "169.254.169.254" in refused.reason


@pytest.mark.slow
async def test_cname_to_a_private_address(gated: Gated, web: Web, record: Record) -> None:
    """An alias of an allowed name that ends at a private address is refused."""
    async with lying_dns(web, ["192.168.1.1"]), gated("a.example") as sandbox:
        said = await say(sandbox, b"GET http://a.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n")
    assert "'a.example' resolves to 192.168.1.1" in said
    assert refusals(record) == [("a.example", "private-address")]


def hello(name: str | None) -> bytes:
    """What a client of TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


NOT_FOR_IT: dict[str, Callable[[], bytes]] = {
    "another name": lambda: hello("other.example"),
    "no name": lambda: hello(None),
    "plain http": lambda: b"GET / HTTP/1.1\r\nHost: git.example\r\n\r\n",
    "ssh": lambda: b"SSH-2.0-x\r\n",
    "cut off": lambda: hello("git.example")[:40],
}


@pytest.mark.parametrize("what", slow_after(2, NOT_FOR_IT))
async def test_tunnel_to_an_allowed_name(
    gated: Gated, record: Record, what: str, backend: dict[str, Any]
) -> None:
    """In a tunnel to port 443 of an allowed host there is TLS for that host, or nothing gets through."""
    async with gated("git.example", **backend) as sandbox:
        said = await say(
            sandbox,
            b"CONNECT git.example:443 HTTP/1.1\r\nHost: git.example\r\n\r\n" + NOT_FOR_IT[what](),
            then_end=True,
        )
        (closed,) = await record.reaches(1, EgressClosed)
    assert said.startswith("HTTP/1.1 200")
    assert said.endswith("\x15\3\3\0\2\2\x31"), "the client is told by an alert of TLS"
    assert refusals(record) == [("git.example", "server-name")]
    assert (closed.sent_bytes, closed.ended_by) == (0, "refused")


async def test_tls_for_another_on_another_port(gated: Gated, web: Web, record: Record) -> None:
    """TLS for another host is refused on every port, where other protocols may pass."""
    async with gated(f"git.example:{web.https}") as sandbox:
        opening = f"CONNECT git.example:{web.https} HTTP/1.1\r\nHost: git.example\r\n\r\n".encode()
        said = await say(sandbox, opening + hello("other.example"))
    assert said.endswith("\x15\3\3\0\2\2\x31")
    assert refusals(record) == [("git.example", "server-name")]


async def test_fronting_by_host(gated: Gated, web: Web) -> None:
    """A plain request says the host that was decided on, whatever its Host says."""
    async with gated("git.example") as sandbox:
        said = await say(
            sandbox,
            b"POST http://git.example/ HTTP/1.1\r\nHost: other.example\r\nContent-Length: 2\r\n\r\nhi",
        )
    assert json.loads(said.rpartition("\r\n\r\n")[2]) == {"size": 2, "host": "git.example"}


async def test_fronting_in_a_tunnel_to_80(gated: Gated, record: Record) -> None:
    """In a tunnel to port 80 another Host is refused."""
    async with gated("git.example") as sandbox:
        said = await say(
            sandbox,
            b"CONNECT git.example:80 HTTP/1.1\r\nHost: git.example\r\n\r\nGET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
        )
    assert "HTTP/1.1 403 ringfence: its Host is 'other.example'" in said
    assert refusals(record) == [("git.example", "unreadable")]


async def test_a_tunnel_within_a_tunnel_to_80(gated: Gated, record: Record) -> None:
    """A second CONNECT, whose bytes nobody would read as requests, is refused in a tunnel to port 80."""
    async with gated("git.example") as sandbox:
        said = await say(
            sandbox,
            b"CONNECT git.example:80 HTTP/1.1\r\nHost: git.example\r\n\r\n"
            b"CONNECT git.example:80 HTTP/1.1\r\nHost: git.example\r\n\r\n",
        )
    assert "HTTP/1.1 400 ringfence: a CONNECT within a CONNECT is not accepted" in said
    assert refusals(record) == [("git.example", "unreadable")]


SMUGGLED = b"GET http://other.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n"
AMBIGUOUS = {
    "two lengths": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
    "length twice": (b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + SMUGGLED, 400),
    "encoding twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n", 400),
    "another encoding": (b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    "host twice": (b"Host: b\r\n\r\n", 400),
    "bare line feeds": (b"X: a\n\n" + SMUGGLED, 400),
    "bare line feed within": (b"X: a\nHost: other.example\r\n\r\n", 400),
    "bare carriage return": (b"X: a\rHost: other.example\r\n\r\n", 400),
    "folded header": (b"X: a\r\n b\r\n\r\n", 400),
    "space before the colon": (b"Content-Length : 5\r\n\r\nhello", 400),
    "a header too large": (b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    "too many headers": (b"X: a\r\n" * 8000 + b"\r\n", 431),
    "a NUL": (b"X: a\0b\r\n\r\n", 400),
}


@pytest.mark.parametrize("what", slow_but([*AMBIGUOUS][:6:3], AMBIGUOUS))
async def test_smuggling(gated: Gated, record: Record, what: str) -> None:
    """What two readers could take for two different requests is refused, and nothing of it is sent on."""
    rest, status = AMBIGUOUS[what]
    async with gated("git.example") as sandbox:
        said = await say(sandbox, b"POST http://git.example/ HTTP/1.1\r\nHost: git.example\r\n" + rest)
    assert said.startswith(f"HTTP/1.1 {status} ringfence: "), said
    assert [event.rule for event in record.of(EgressDecided)] == ["unreadable"]


async def test_second_request_is_not_read(gated: Gated, web: Web, record: Record) -> None:
    """After one request the connection ends: what was sent behind it goes nowhere."""
    (web.root / "file").write_text("the mirror")
    async with gated("git.example") as sandbox:
        said = await say(
            sandbox, b"GET http://git.example/file HTTP/1.1\r\nHost: git.example\r\n\r\n" + SMUGGLED
        )
    assert said.endswith("the mirror")
    assert said.count("HTTP/1.1") == 1
    assert [event.host for event in record.of(EgressDecided)] == ["git.example"]


MALFORMED = {
    "CONNECT with a body": (
        b"CONNECT git.example:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        400,
    ),
    "CONNECT with chunks": (
        b"CONNECT git.example:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        400,
    ),
    "CONNECT without a port": (b"CONNECT git.example HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "CONNECT to port 0": (b"CONNECT git.example:0 HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "CONNECT with a user": (b"CONNECT u@git.example:443 HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "CONNECT to a zone": (b"CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "CONNECT with an escape": (b"CONNECT git%2eexample:443 HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "CONNECT with a NUL": (
        b"CONNECT git.example\0.other.example:443 HTTP/1.1\r\nHost: git.example\r\n\r\n",
        400,
    ),
    "a path alone": (b"GET / HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "https by GET": (b"GET https://git.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "ftp": (b"GET ftp://git.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "a user": (b"GET http://git.example@other.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "a backslash": (b"GET http://git.example\\@other.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n", 400),
    "SOCKS 5": (b"\5\1\0", 400),
    "SOCKS 4": (b"\4\1\0\x50\1\2\3\4\0", 400),
    "TLS": (b"\x16\3\1\0\5hello", 400),
}


@pytest.mark.parametrize("what", slow_but([*MALFORMED][:6:3], MALFORMED))
async def test_malformed(gated: Gated, record: Record, what: str) -> None:
    """What is no request to a proxy for HTTP is refused, and recorded as such."""
    data, status = MALFORMED[what]
    async with gated("git.example") as sandbox:
        said = await say(sandbox, data)
    assert said.startswith(f"HTTP/1.1 {status} ringfence: "), said
    assert [event.rule for event in record.of(EgressDecided)] == ["unreadable"]


FLOOD = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held, failed = [], 0
for number in range(int(sys.argv[1])):
    if len(held) > 300:
        held.pop(0).close()
    s = socket.socket()
    s.settimeout(0.02)  # a full queue is tried again by the kernel only after a second
    try:
        s.connect(("127.0.0.1", 3128))
        s.sendall(b"GET http://git.exa")
        held.append(s)
    except OSError:
        failed += 1
said, until = b"", time.monotonic() + 60
while not said and time.monotonic() < until:
    try:
        s = socket.create_connection(("127.0.0.1", 3128), timeout=30)
        s.sendall(b"GET http://git.example/file HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
        while piece := s.recv(65536):
            said += piece
    except OSError:
        pass  # one too many at that moment
print(said.decode().rpartition("\\r\\n")[2])
"""


@pytest.mark.slow
async def test_flood_of_half_requests(gated: Gated, web: Web, record: Record) -> None:
    """10,000 connections that say half a request and no more keep nobody from being served."""
    (web.root / "file").write_text("the mirror")
    async with gated("git.example") as sandbox:
        result = await python(sandbox, FLOOD, "10000", timeout_s=100)
    assert result.stdout.strip() == "the mirror", result.stderr
    assert [event.allowed for event in record.of(EgressDecided) if event.host] == [True]


async def test_slow_head(gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose head does not come to its end in time is given up."""
    monkeypatch.setattr("ringfence.egress.proxy.proxy.HEAD_TIMEOUT_S", 0.2)
    async with gated("git.example") as sandbox:
        said = await say(sandbox, b"GET http://git.example/ HTTP/1.1\r\nX: ")
    assert said.startswith("HTTP/1.1 408"), said
    assert [event.rule for event in record.of(EgressDecided)] == ["unreadable"]


@pytest.mark.slow
async def test_slow_hello(gated: Gated, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel in which no TLS begins is given up."""
    monkeypatch.setattr("ringfence.egress.proxy.tunnel.HELLO_TIMEOUT_S", 0.2)
    async with gated("git.example") as sandbox:
        said = await say(sandbox, b"CONNECT git.example:443 HTTP/1.1\r\nHost: git.example\r\n\r\n\x16\3\1")
    assert said.endswith("\x15\3\3\0\2\2\x31")
    assert refusals(record) == [("git.example", "server-name")]


async def test_a_loop_of_refusals_is_bounded_in_the_record(gated: Gated, record: Record) -> None:
    """The same refusal a hundred times is a dozen lines, of which the last says how often."""
    loop = (
        "import urllib.request as r\n"
        "for _ in range(100):\n"
        " try: r.urlopen('http://other.example/')\n"
        " except OSError: pass\n"
    )
    async with gated("git.example") as sandbox:
        assert (await python(sandbox, loop)).ok
    told = [event.repeated for event in record.of(EgressDecided)]
    assert told == [1, 2, 3, 4, 5, 8, 16, 32, 64]


@pytest.mark.slow
async def test_byte_cap(gated: Gated, web: Web, record: Record) -> None:
    """A rule's bytes are the sandbox's, not a connection's: once used up, the host is refused."""
    (web.root / "file").write_text("x" * 20_000)
    ask = b"GET http://git.example/file HTTP/1.1\r\nHost: git.example\r\n\r\n"
    async with gated({"host": "git.example", "max_bytes": 30_000}) as sandbox:
        assert len(await say(sandbox, ask)) > 20_000
        assert len(await say(sandbox, ask)) < 20_000
        said = await say(sandbox, ask)
    assert said.startswith("HTTP/1.1 403"), said
    assert "used up" in said
    assert refusals(record) == [("git.example", "limit")]
    assert record.of(EgressClosed)[1].ended_by == "limit"


async def test_no_other_way(gated: Gated, backend: dict[str, Any]) -> None:
    """Beside the proxy there is no route, no name and no raw socket, and no proxy without a grant."""
    script = (
        "import socket\n"
        "def tried(what):\n"
        " try: what(); return 'done'\n"
        " except OSError as error: return type(error).__name__\n"
        "print(tried(lambda: socket.create_connection(('8.8.8.8', 53), 5)),"
        " tried(lambda: socket.getaddrinfo('pypi.org', 443)),"
        " tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))\n"
    )
    async with gated("git.example", **backend) as sandbox:
        result = await python(sandbox, script)
    assert "done" not in result.stdout
    assert len(result.stdout.split()) == 3, result.stderr


@pytest.mark.slow
async def test_another_sandbox(gated: Gated, web: Web, record: Record) -> None:
    """The gate of one sandbox serves no other: there is no port of the host's to find it at."""
    async with gated("git.example") as first, gated() as second:
        assert (await say(first, b"CONNECT x.example:1 HTTP/1.1\r\nHost: git.example\r\n\r\n")).startswith(
            "HTTP/1.1 403"
        )
        said = await say(second, b"GET http://git.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n")
        assert said.startswith("HTTP/1.1 403"), said
        ports = (await python(second, "print(open('/proc/net/tcp').read())")).stdout.splitlines()
    listening = [row.split()[1] for row in ports[1:] if row.split()[3:4] == ["0A"]]
    assert listening == ["0100007F:0C38"]  # its own proxy
    assert {event.sandbox_id for event in record.of(EgressDecided)} == {first.id, second.id}


@pytest.mark.slow
async def test_all_bytes_come_through(gated: Gated, web: Web) -> None:
    """64 MiB come out of a tunnel as they went in."""
    size = 64 * 1024**2
    with (web.root / "file").open("wb") as file:
        for number in range(size // 65_536):
            file.write(number.to_bytes(4) * 16_384)
    script = (
        "import hashlib, ssl, urllib.request as r\n"
        "h, n = hashlib.sha256(), 0\n"
        "with r.urlopen('https://git.example/file') as f:\n"
        " while p := f.read(65536): h.update(p); n += len(p)\n"
        "print(n, h.hexdigest())\n"
    )
    async with gated("git.example") as sandbox:
        result = await python(sandbox, script, timeout_s=60)
    import hashlib

    expected = hashlib.sha256((web.root / "file").read_bytes()).hexdigest()
    assert result.stdout.split() == [str(size), expected], result.stderr


async def test_names_of_the_mirror_are_those_of_its_certificate(web: Web) -> None:
    """The tests' own web is what it says: without this, nothing above would mean much."""
    context = ssl.create_default_context()
    web.authority.configure_trust(context)
    async with await anyio.connect_tcp(
        "127.0.0.1", web.https, tls_hostname=NAMES[0], ssl_context=context, tls_standard_compatible=False
    ):
        pass
