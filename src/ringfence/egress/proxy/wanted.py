"""What a person means by an address, as the proxy would be asked for it."""

import re

from ringfence.config.host import read_host
from ringfence.egress.proxy.decision import HTTP_PORT, TLS_PORT, Wanted

_URL = re.compile(
    r"((?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<host>\[[^\]]*\]|[^/:?#\[\]@]+)(:(?P<port>[0-9]{1,5}))?(?P<path>[/?].*)?"
)
_HIGHEST_PORT = 65_535


def wanted_by(url: str, method: str = "GET") -> Wanted:
    """What a client inside would ask the proxy for to reach `url`.

    Args:
        url: `https://host/path`, `http://...`, or `host` or `host:port`, which mean TLS.
        method: Of the request; it counts for http:// only, as in TLS it cannot be seen.

    Raises:
        ValueError: It is no such address.
    """
    match = _URL.fullmatch(url)
    scheme = (match["scheme"] or "https").lower() if match else ""
    if match is None or scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is no address; write https://host/path, http://host/path or host:port")
    is_plain = scheme == "http"
    port = int(match["port"] or (HTTP_PORT if is_plain else TLS_PORT))
    if not 1 <= port <= _HIGHEST_PORT:
        raise ValueError(f"{url!r} has the port {port}; a port is a number from 1 to {_HIGHEST_PORT}")
    host = read_host(match["host"])
    if not is_plain:
        return Wanted(host, port)
    path = (match["path"] or "/").partition("#")[0]
    return Wanted(host, port, method.upper(), path if path.startswith("/") else f"/{path}")
