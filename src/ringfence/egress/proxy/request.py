"""Reads requests to the proxy: the target from the request line, checked against the tunnel around it."""

import re
from dataclasses import dataclass

from ringfence.config.host import HIGHEST_PORT, read_host
from ringfence.egress.http.rules import BadRequest, Request
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.proxy.decision import HTTP_PORT, TLS_PORT, Target

HEAD_TIMEOUT_S = 20.0
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>[0-9]{1,5})", re.ASCII)
_URL_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]@]+)(:(?P<port>[0-9]{0,5}))?", re.ASCII)
_SHOWN_CHARS = 200


@dataclass
class ProxyRequest:
    """A request whose head was read.

    Args:
        number: The number of its connection.
        target: The requested target.
        headers: The headers, with names in lower case.
        connection: The connection, from which the body is read and to which the response is sent.
    """

    number: int
    target: Target
    headers: list[tuple[bytes, bytes]]
    connection: HttpConnection


async def read_proxy_request(
    connection: HttpConnection, number: int, *, tunnel: Target | None = None
) -> ProxyRequest | None:
    """Read the head of a request; None if the connection ended before its first byte.

    Args:
        connection: The connection from inside.
        number: Its number.
        tunnel: The target of the CONNECT around the request; the request must then have a path and the tunnel's Host.

    Raises:
        BadRequest: The request is too large, too slow, ambiguous or not HTTP.
    """
    request = await connection.read_head()
    if request is None:
        return None
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in request.headers]
    return ProxyRequest(number, _read_target(request, tunnel), headers, connection)


def _read_target(request: Request, tunnel: Target | None) -> Target:
    if tunnel is not None:
        return _path_target(request, tunnel)
    return _connect_target(request.target) if request.method == "CONNECT" else _url_target(request)


def _connect_target(target: str) -> Target:
    match = _AUTHORITY.fullmatch(target)
    if match is None:
        raise BadRequest(400, f"{target[:_SHOWN_CHARS]!r} is not HOST:PORT")
    return _target(match["host"], int(match["port"]), "CONNECT", "")


def _url_target(request: Request) -> Target:
    scheme, colon, rest = request.target.partition("://")
    shown = repr(request.target[:_SHOWN_CHARS])
    if not colon or scheme.lower() != "http":
        hint = "; use CONNECT for https" if scheme.lower() == "https" else ""
        raise BadRequest(400, f"{shown} is not an http:// address, which a proxy needs{hint}")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    match = _URL_AUTHORITY.fullmatch(authority)
    if match is None or "#" in request.target:
        raise BadRequest(400, f"{shown} is not an accepted address (no user, no password, no fragment)")
    tail = rest[len(authority) :]
    path = tail if tail.startswith("/") else f"/{tail}"
    return _target(match["host"], int(match["port"] or HTTP_PORT), request.method, path)


def _path_target(request: Request, tunnel: Target) -> Target:
    if request.method == "CONNECT":
        raise BadRequest(400, "a CONNECT within a CONNECT is not accepted")
    if not request.target.startswith("/"):
        raise BadRequest(
            400, f"{request.target[:_SHOWN_CHARS]!r} is not a path, as requests in a tunnel have"
        )
    named = request.header("host")
    match = _URL_AUTHORITY.fullmatch(named)
    try:
        is_same = match is not None and read_host(match["host"]) == tunnel.host
    except ValueError:
        is_same = False
    usual = TLS_PORT if tunnel.port == TLS_PORT else HTTP_PORT
    if not is_same or (match and int(match["port"] or usual) != tunnel.port):
        raise BadRequest(
            403, f"its Host is {named[:_SHOWN_CHARS]!r}, but the tunnel is to {tunnel.authority}"
        )
    return Target(tunnel.host, tunnel.port, request.method, request.target)


def _target(host: str, port: int, method: str, path: str) -> Target:
    if not 1 <= port <= HIGHEST_PORT:
        raise BadRequest(400, f"{port} is not a port")
    try:
        return Target(read_host(host), port, method, path)
    except ValueError as exc:
        raise BadRequest(400, str(exc)) from exc
