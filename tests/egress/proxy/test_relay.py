"""What of a plain request leaves for its host."""

import socket

import anyio
import pytest
from anyio.abc import SocketStream

from ringfence.egress.http.server import HttpConnection
from ringfence.egress.proxy.relay import Relay
from ringfence.egress.proxy.request import read_proxy_request
from ringfence.egress.transfer import Transfer


async def pair() -> tuple[SocketStream, SocketStream]:
    """Two ends of a connection."""
    one, other = socket.socketpair()
    return await SocketStream.from_socket(one), await SocketStream.from_socket(other)


@pytest.mark.parametrize(
    "header",
    [
        "X-HTTP-Method-Override: DELETE",
        "x-http-method: DELETE",
        "X-Forwarded-Host: other.example",
        "Forwarded: host=other.example",
        "X-Original-Host: other.example",
        "X-Method-Override: DELETE",
        "X-Original-URL: /admin",
        "X_Forwarded_Host: other.example",
        "X_HTTP_Method_Override: DELETE",
        "X-Envoy-Original-Path: /admin",
        "X-Rewrite-URL: /admin",
        "Proxy-Authorization: Basic eDp5",
        "Upgrade: websocket",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
        "Proxy: http://other.example",
        "Proxy-Host: other.example",
        "WL-Proxy-Client-IP: 127.0.0.1",
        "X-Forwarded: for=127.0.0.1",
        "X-HTTP-DestinationURL: http://other.example/",
        "X-Host-Override: other.example",
        "X-Remote-Addr: 127.0.0.1",
        "X-Middleware-Subrequest: middleware",
        "X_Override_URL: /admin",
        "Request-URI: /admin",
        "Client-IP: 127.0.0.1",
    ],
)
async def test_what_makes_another_request_of_it_stays(header: str) -> None:
    """A rule on methods and paths was asked about the first line; headers that overrule that are not passed on."""
    client, inside = await pair()
    outside, host = await pair()
    async with client, inside, outside, host:
        asked = f"GET http://a.example/public HTTP/1.1\r\nHost: a.example\r\n{header}\r\nX-Kept: yes\r\n\r\n"
        await client.send(asked.encode())
        request = await read_proxy_request(HttpConnection(inside), 1)
        assert request is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Relay(request, outside, Transfer()).run)
            got = (await host.receive()).lower()
            await host.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert b"x-kept: yes" in got
    assert header.split(":")[0].lower().encode() not in got
