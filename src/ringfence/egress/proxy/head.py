"""The head of a request to the proxy: bounded, unambiguous, in time. Every byte is hostile."""

import re
from dataclasses import dataclass

import anyio
import h11
from anyio.abc import ByteStream

from ringfence.config.host import read_host
from ringfence.egress.proxy.decision import HTTP_PORT, TLS_PORT, Wanted
from ringfence.egress.reading import LOOSE_LINE

HEAD_BYTES = 32 * 1024
HEAD_S = 20.0
_READ = 16 * 1024
_END = b"\r\n\r\n"
_METHOD = re.compile(rb"[A-Z]{1,20}( |$)|[A-Z]{1,20}$")
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>[0-9]{1,5})", re.ASCII)
_URL_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]@]+)(:(?P<port>[0-9]{0,5}))?", re.ASCII)
_HIGHEST_PORT = 65_535


class Unreadable(Exception):
    """What came is no request that is taken; the text says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class Head:
    """A request's head, and the parser that has the rest of it."""

    wanted: Wanted
    headers: list[tuple[bytes, bytes]]
    http: h11.Connection
    http_version: bytes
    early: bytes
    """What came after the head, for CONNECT."""


async def read_head(
    inside: ByteStream, *, tunnelled: Wanted | None = None, early: bytes = b""
) -> Head | None:
    """Read a head; None if the connection ended before its first byte.

    Args:
        inside: The connection.
        tunnelled: The host of a CONNECT within which it is; then its target is a path, and its Host that host's.
        early: What came already.

    Raises:
        Unreadable: It is too large, too slow, ambiguous or no HTTP.
    """
    try:
        with anyio.fail_after(HEAD_S):
            raw, rest = await _raw_head(inside, early)
    except TimeoutError:
        raise Unreadable(408, f"the request's head was not whole within {HEAD_S:g} s") from None
    if not raw:
        return None
    http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    try:
        # A client that speaks before it was answered to CONNECT is no matter of h11's.
        is_connect = raw.startswith(b"CONNECT ")
        http.receive_data(raw if is_connect else raw + rest)
        event = http.next_event()
    except h11.RemoteProtocolError as exc:
        raise Unreadable(400, f"the request is no HTTP: {exc}") from exc
    if not isinstance(event, h11.Request):
        raise Unreadable(400, "the request is no HTTP")
    headers = list(event.headers)
    _refuse_ambiguity(headers)
    method, target = event.method.decode("ascii"), event.target.decode("ascii", "replace")
    if method == "CONNECT":
        if tunnelled is not None:
            raise Unreadable(400, "a CONNECT within a CONNECT is not taken")
        _refuse_body(headers)
        return Head(_connect_target(target), headers, http, event.http_version, rest)
    wanted = (
        _url_target(method, target) if tunnelled is None else _path_target(method, target, tunnelled, headers)
    )
    return Head(wanted, headers, http, event.http_version, b"")


async def _raw_head(inside: ByteStream, early: bytes) -> tuple[bytes, bytes]:
    """The bytes of the head and those after it; none of both at the end of the connection."""
    data = bytearray(early)
    looked = 0
    while True:
        if data and not _METHOD.match(data[:21]):
            raise Unreadable(
                400, "the request is no HTTP (this is a proxy for HTTP; it speaks neither SOCKS nor TLS)"
            )
        end = data.find(_END, max(0, looked - len(_END)))
        stop = end + len(_END) if end >= 0 else len(data)
        if LOOSE_LINE.search(data, max(0, looked - len(_END)), stop):
            raise Unreadable(400, "the request's head has lines that do not end properly, or that go on")
        if stop > HEAD_BYTES:
            raise Unreadable(431, f"the request's head is longer than {HEAD_BYTES} bytes")
        if end >= 0:
            return bytes(data[:stop]), bytes(data[stop:])
        looked = len(data)
        try:
            data += await inside.receive(_READ)
        except anyio.EndOfStream:
            if data:
                raise Unreadable(400, "the request ended within its head") from None
            return b"", b""


def _refuse_ambiguity(headers: list[tuple[bytes, bytes]]) -> None:
    """Refuse what two readers could take for two different requests."""
    names = [name for name, _ in headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise Unreadable(400, "the request has two lengths")
    for name in (b"host", b"transfer-encoding", b"content-length"):
        if names.count(name) > 1:
            raise Unreadable(400, f"the request says {name.decode()!r} twice")


def _refuse_body(headers: list[tuple[bytes, bytes]]) -> None:
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value.strip() != b"0"):
            raise Unreadable(400, "a CONNECT has no body")


def _connect_target(target: str) -> Wanted:
    match = _AUTHORITY.fullmatch(target)
    if match is None:
        raise Unreadable(400, f"{target[:200]!r} is not HOST:PORT")
    return _wanted(match["host"], int(match["port"]), "CONNECT", "")


def _url_target(method: str, target: str) -> Wanted:
    scheme, colon, rest = target.partition("://")
    if not colon or scheme.lower() != "http":
        hint = "; ask for https by CONNECT" if scheme.lower() == "https" else ""
        raise Unreadable(400, f"{target[:200]!r} is no http:// address, which a proxy needs{hint}")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    match = _URL_AUTHORITY.fullmatch(authority)
    if match is None or "#" in target:
        raise Unreadable(
            400, f"{target[:200]!r} is no address that is taken (no user, no password, no fragment)"
        )
    tail = rest[len(authority) :]
    path = tail if tail.startswith("/") else f"/{tail}"
    return _wanted(match["host"], int(match["port"] or HTTP_PORT), method, path)


def _path_target(method: str, target: str, tunnelled: Wanted, headers: list[tuple[bytes, bytes]]) -> Wanted:
    if not target.startswith("/"):
        raise Unreadable(400, f"{target[:200]!r} is no path, which a request in a tunnel has")
    said = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
    match = _URL_AUTHORITY.fullmatch(said)
    try:
        is_same = match is not None and read_host(match["host"]) == tunnelled.host
    except ValueError:
        is_same = False
    usual = TLS_PORT if tunnelled.port == TLS_PORT else HTTP_PORT
    if not is_same or (match and int(match["port"] or usual) != tunnelled.port):
        raise Unreadable(403, f"its Host is {said[:200]!r}, but the tunnel is to {tunnelled.target}")
    return Wanted(tunnelled.host, tunnelled.port, method, target)


def _wanted(host: str, port: int, method: str, path: str) -> Wanted:
    if not 1 <= port <= _HIGHEST_PORT:
        raise Unreadable(400, f"{port} is no port")
    try:
        return Wanted(read_host(host), port, method, path)
    except ValueError as exc:
        raise Unreadable(400, str(exc)) from exc
