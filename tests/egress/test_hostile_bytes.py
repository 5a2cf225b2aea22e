"""Whatever a process inside sends to a server of the gate, no error but a lost connection comes of it."""

import ipaddress
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import msgspec
import pytest
from anyio.abc import ByteStream
from hypothesis import given
from hypothesis import strategies as st

from ringfence.config.egress import Egress
from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.proxy import EngineProxy
from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import ModelProvider
from ringfence.egress.gateway.server import GatewayServer
from ringfence.egress.gateway.upstream import Upstream, UpstreamRequest
from ringfence.egress.proxy.proxy import ForwardProxy
from ringfence.egress.resolver import Resolved
from ringfence.events import Event
from ringfence.secret import Credential

PATIENCE_S = 20.0
PIECES = [
    b"\r\n", b"\n", b"\r", b" ", b"\0", b"\xff", b"%00", b"%ff", b"%2f", b"..", b"[::1]", b"xn--a", b"@", b":", b"99999",
    b"-1", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Expect: 100-continue\r\n", b"Upgrade: tcp\r\n",
    b"HTTP/1.0", b'"', b"\\ud800", b"[", b"{", b"null", b"1e999", b"?", b"#", b"*", b"0\r\n\r\n", b"." * 300, b"a" * 70,
]  # fmt: skip


def request(line: bytes, body: bytes = b"", more: bytes = b"") -> bytes:
    """A request as a client sends it."""
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return line + b" HTTP/1.1\r\nHost: a.example\r\n" + more + length + b"\r\n" + body


REQUESTS = {
    "proxy": [
        request(b"GET http://a.example/x/y?z"),
        request(b"CONNECT a.example:80") + request(b"GET /x"),
        request(b"CONNECT [::1]:443"),
        request(b"CONNECT a.example:443") + b"\x16\x03\x01",
        request(b"POST http://b.example:81/", b"hello"),
        request(b"COPY http://a.example/y", more=b"Destination: /x\r\n"),
    ],
    "engine": [
        request(b"GET /v1.41/containers/json?filters=%7B%22label%22%3A%5B%22a%22%5D%7D"),
        request(
            b"POST /containers/a/exec", b'{"Cmd": ["a"], "Tty": false, "Env": ["a=b"], "ConsoleSize": [1, 2]}'
        ),
        request(b"POST /exec/a/start", b'{"Detach": false}', b"Upgrade: tcp\r\n"),
        request(b"GET /containers/a/logs?tail=5&since=1.5"),
    ],
    "gateway": [
        request(
            b"POST /v1/messages?beta=true",
            b'{"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": [{"type": "image", "source":'
            b' {"type": "base64", "data": "aa"}}]}], "tools": [{"type": "bash_1"}], "thinking": {"budget_tokens": 9}}',
            b"anthropic-version: 1\r\nanthropic-beta: a,b\r\n",
        ),
        request(
            b"POST /v1/responses",
            b'{"model": "m", "input": [{"type": "message", "content": [{"image_url": "data:x"}]},'
            b' {"type": "additional_tools", "tools": [{"type": "namespace", "tools": [{"type": "function"}]}]}]}',
        ),
        request(b"POST /v1/chat/completions", b'{"model": "m", "n": 2, "stream": true, "messages": []}'),
        request(b"GET /v1/models?limit=5"),
    ],
}
EDITS = st.lists(
    st.tuples(st.integers(0, 600), st.integers(0, 8), st.sampled_from(PIECES) | st.binary(max_size=3)),
    max_size=6,
)


class _Sent(ByteStream):
    """A connection on which these bytes arrive in pieces, and then its end."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data = data
        self._size = size

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        await anyio.lowlevel.checkpoint()
        if not self._data:
            raise anyio.EndOfStream
        size = min(max_bytes, self._size)
        piece, self._data = self._data[:size], self._data[size:]
        return piece

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint()

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class _Response:
    status = 200
    headers = (("Content-Type", "text/event-stream"), ("Request-Id", " padded "))

    async def body(self) -> AsyncGenerator[bytes, None]:
        yield b'data: {"usage": {"input_tokens": 1, "output_tokens": 2}}\r\rdata: [DONE]\r\r'

    async def aclose(self) -> None:
        pass


class _Model(Upstream):
    origin = "a model in this process"

    async def send(self, request: UpstreamRequest) -> _Response:
        return _Response()


async def _emit(event: Event) -> None:
    """Write an event as the journal does."""
    msgspec.json.encode(event)


async def _resolve(_host: str, port: int) -> Sequence[Resolved]:
    return [Resolved(ipaddress.ip_address("10.0.0.1"), port)]


async def _serve(server: str, stream: ByteStream) -> None:
    """Serve one connection; a lost one is no error."""
    egress = Egress.model_validate(
        {"allow": ["open"], "deny": ["*.b.example", {"host": "a.example", "paths": ["/x/*"]}]}
    )
    access = EngineAccess(label="lab=mine", allow=("exec", "start", "stop", "restart"))
    credential = Credential("api_key", "sk-ant-api03-of-the-tests")
    providers = [
        ModelProvider("anthropic", credential, "api_key", _Model()),
        ModelProvider("openai", credential, "api_key", _Model()),
    ]
    gateway = Gateway(providers, budget=Budget(tokens=10**6), agent_is_inside=True)
    servers = {
        "proxy": ForwardProxy(egress, sandbox_id="one", emit=_emit, resolve=_resolve).serve,
        "engine": EngineProxy(access, Path("/nonexistent/engine.sock"), sandbox_id="one", emit=_emit).serve,
        "gateway": GatewayServer(gateway, "one").serve,
    }
    async with gateway.opened(_emit):
        with anyio.fail_after(PATIENCE_S):
            try:
                await servers[server](stream)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                return


@pytest.mark.parametrize("server", REQUESTS)
@given(number=st.integers(0, 5), edits=EDITS, size=st.integers(1, 400))
def test_no_request_is_an_internal_error(
    server: str, number: int, edits: list[tuple[int, int, bytes]], size: int
) -> None:
    """A request that is changed in a few places is answered, refused or cut off."""
    requests = REQUESTS[server]
    data = requests[number % len(requests)]
    for at, removed, inserted in edits:
        data = data[:at] + inserted + data[at + removed :]
    anyio.run(_serve, server, _Sent(data, size))
