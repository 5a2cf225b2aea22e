"""The server over streamable HTTP, on the loopback of this machine alone.

Every request carries a bearer token, in the older revisions, too; a session is a token. The library keeps no sessions of
its own (`stateless_http`), so that nothing but the token decides who may use a handle. Requests for another host or from
a page of another origin are refused before their token is looked at: a browser must not be led here by a name that
someone else resolves to 127.0.0.1.
"""

import hashlib
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.filesystem import replace_file
from ringfence.fleet.daemon.http_server import serving_on
from ringfence.integrations.mcp.registry import SandboxRegistry, log
from ringfence.integrations.mcp.server import MAX_MESSAGE_BYTES, OWNER, create_server

TOKEN_VARIABLE = "RINGFENCE_MCP_TOKEN"  # noqa: S105 -- the name of a variable
PATH = "/mcp"
_LOOPBACK = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}
_MIN_TOKEN_CHARS = 32
_MAX_TOKENS = 100
_MAX_FILE_BYTES = 64 * 1024
_HIGHEST_PORT = 65535


def read_tokens(file: Path | None, environ: Mapping[str, str]) -> list[str]:
    """Read the tokens of a server: those in a file, one on each line, or the one in the environment.

    Without either, the token is in the state directory, where it is made at first.

    Raises:
        UsageError: The file cannot be used, can be read by others, or has a token that could be guessed.
        InfrastructureFault: The state directory cannot be written.
    """
    if file is None and (token := environ.get(TOKEN_VARIABLE, "").strip()):
        tokens, source = [token], f"${TOKEN_VARIABLE}"
    else:
        file = file or _own_file()
        tokens, source = _read_file(file), repr(str(file))
    for token in tokens:
        if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
            raise UsageError(
                f"{source} has a token that is no word of at least {_MIN_TOKEN_CHARS} plain characters; "
                "`openssl rand -hex 32` makes one"
            )
    if not 1 <= len(set(tokens)) == len(tokens) <= _MAX_TOKENS:
        raise UsageError(f"{source} must have from 1 to {_MAX_TOKENS} different tokens, one on each line")
    log(f"clients need a token of {source}, as the header `Authorization: Bearer TOKEN`")
    return tokens


def _read_file(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            status = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            content = opened.read(_MAX_FILE_BYTES)
    except OSError as exc:
        raise UsageError(f"--token-file {str(file)!r} cannot be read: {exc.strerror or exc}") from exc
    if status & 0o077:
        raise UsageError(f"--token-file {str(file)!r} can be read by other users; `chmod 600` it")
    return [line for each in content.decode("utf-8", "replace").splitlines() if (line := each.strip())]


def _own_file() -> Path:
    file = state_dir() / "mcp-token"
    try:
        make_private_dir(state_dir())
        if not file.exists():
            replace_file(file, f"{secrets.token_hex(32)}\n".encode())
    except OSError as exc:
        raise InfrastructureFault(f"{str(file)!r} cannot be written: {exc.strerror or exc}") from exc
    return file


class Guard:
    """Refuses requests for another host, from another origin, or without a token; names the session of the others.

    Args:
        app: Handles accepted requests.
        tokens: The tokens.
        hosts: The values of `Host` under which the server is reached.
    """

    def __init__(self, app: ASGIApp, tokens: Sequence[str], hosts: Sequence[str]) -> None:
        self._app = app
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]
        self._hosts = frozenset(hosts)
        self._origins = frozenset(f"http://{host}" for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return  # a WebSocket, which ends without a handshake
        headers = Headers(scope=scope)
        if headers.get("host") not in self._hosts:
            response = PlainTextResponse("this host is not served here\n", 421)
        elif headers.get("origin") not in (None, *self._origins):
            response = PlainTextResponse("requests of this origin are refused\n", 403)
        elif (owner := self._owner(headers)) is None:
            response = PlainTextResponse(
                "a valid bearer token is required\n", 401, headers={"WWW-Authenticate": "Bearer"}
            )
        else:
            await self._app({**scope, OWNER: owner}, receive, send)
            return
        await response(scope, receive, send)

    def _owner(self, headers: Headers) -> str | None:
        """The session of a request's token. All tokens are compared, each in constant time."""
        given = headers.getlist("authorization")
        kind, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        digest = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = [number for number, known in enumerate(self._digests) if hmac.compare_digest(known, digest)]
        return f"token {found[0]}" if found and kind.lower() == "bearer" else None


def listen(address: str) -> socket.socket:
    """Listen at [HOST:]PORT on the loopback.

    Raises:
        UsageError: The address is not on the loopback, or has no valid port.
        InfrastructureFault: The port is taken.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if host not in _LOOPBACK:
        raise UsageError(
            f"--http {address!r} is not on the loopback, and there is no TLS; write 127.0.0.1:PORT, and forward the "
            "port by ssh to reach it from elsewhere"
        )
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= _HIGHEST_PORT):
        raise UsageError(f"--http {address!r} has no port from 0 to {_HIGHEST_PORT}; write 127.0.0.1:PORT")
    try:
        return socket.create_server(
            ("127.0.0.1" if host == "localhost" else host, int(port)), family=_LOOPBACK[host]
        )
    except OSError as exc:
        raise InfrastructureFault(
            f"nothing can listen at {address!r}: {exc.strerror or exc}; name another port"
        ) from exc


async def serve_http(registry: SandboxRegistry, listener: socket.socket, tokens: Sequence[str]) -> None:
    """Serve sessions until cancelled."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    server = create_server(registry, owner=None)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=MAX_MESSAGE_BYTES,
        # Host and Origin are checked by `Guard`, by exact values.
        transport_security=None,
        host="",
    )
    guard = Guard(app, tokens, [shown, f"localhost:{port}"])
    async with server.session_manager.run(), serving_on(guard, listener):
        log(f"serving MCP at http://{shown}{PATH}")
        await anyio.sleep_forever()
