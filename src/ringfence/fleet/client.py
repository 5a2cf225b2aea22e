"""The client of the HTTP API, over the daemon's Unix socket, or over TCP with a token. It imports few modules."""

import http.client
import json
import os
import shlex
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ringfence.config.paths import state_dir, user_config_file
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    PolicyRefused,
    RingfenceError,
    UsageError,
)
from ringfence.filesystem import short_path
from ringfence.frozen import frozen

_TIMEOUT_S = 30.0
_MAX_ERROR_BYTES = 1024 * 1024
_TOKEN = "RINGFENCE_TOKEN"  # noqa: S105 -- the name of a variable
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_KINDS: Mapping[int, type[RingfenceError]] = {
    1: RingfenceError,
    2: UsageError,
    75: InfrastructureFault,
    77: AuthenticationFailed,
    78: ConfigurationError,
}


class NoDaemon(UsageError):
    """No daemon runs for the state directory."""

    def __init__(self) -> None:
        super().__init__(
            "no daemon is running for this state directory; start one with `ringfence fleet up` "
            "(`fleet validate` and `fleet show` need none)"
        )


def socket_path(state: Path | None = None) -> Path:
    """Return the path of the socket on which a state directory's daemon listens."""
    return (state or state_dir()) / "fleet" / "daemon.sock"


def open_client(server: str | None = None) -> "FleetClient":
    """Create a client of this machine's daemon, or of a server at a URL such as `https://fleet.example.com`.

    Args:
        server: The URL. Its token comes from RINGFENCE_TOKEN, or from the file `token` of the user's configuration.

    Raises:
        UsageError: The URL cannot be used, or there is no token.
    """
    return FleetClient() if server is None else FleetClient(server=find_server(server))


def find_server(server: str) -> "Server":
    """Return the server at a URL, with the token for it.

    Raises:
        UsageError: The URL cannot be used, or there is no token.
    """
    try:
        parsed = urlsplit(server)
        port = parsed.port
    except ValueError:
        parsed, port = urlsplit(""), None
    if parsed.scheme not in ("http", "https") or not parsed.hostname or parsed.username or parsed.query:
        raise UsageError(
            f"--server: {server!r} is not the address of a server; write https://HOST or https://HOST:PORT"
        )
    if parsed.scheme == "http" and parsed.hostname not in _LOOPBACK:
        raise UsageError(
            f"--server: {server!r} would send the token in plain text; write https://, or forward a port of 127.0.0.1 "
            "to it by ssh"
        )
    return Server(parsed.scheme, parsed.hostname, port, parsed.path.rstrip("/"), _read_token())


def _read_token() -> str:
    """Return the token for a server.

    Raises:
        UsageError: There is no token, or other users can read its file.
    """
    token = os.environ.get(_TOKEN, "").strip()
    if token:
        return token
    file = user_config_file().parent / "token"
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise UsageError(
            f"--server needs a token: set {_TOKEN}, or write it to {str(file)!r} with mode 600; "
            "`ringfence fleet token create NAME` on the fleet's machine creates one"
        ) from None
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"the token in {str(file)!r} cannot be read: {exc}") from exc
    if mode & 0o077:
        raise UsageError(
            f"others can read the token in {str(file)!r}; run `chmod 600 {shlex.quote(str(file))}`"
        )
    return token


@frozen
class Server:
    """A server of the API on another machine, or on another port of this one."""

    scheme: str
    host: str
    port: int | None
    path: str
    """The part of the path before `/v1`."""
    token: str

    @property
    def url(self) -> str:
        """Its URL, without the token."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port is None else f':{self.port}'}{self.path}"


class FleetClient:
    """A client of a fleet's API.

    Args:
        path: The daemon's socket; None: that of the state directory.
        timeout_s: How long a response may take.
        server: The server, instead of the daemon of this machine.

    Raises:
        UsageError: By every method: the request is refused, or no daemon is running.
        AuthenticationFailed: By every method: the token is missing, wrong or expired.
        InfrastructureFault: By every method: the connection broke, or nothing answers.
    """

    def __init__(
        self, path: Path | None = None, *, timeout_s: float = _TIMEOUT_S, server: Server | None = None
    ) -> None:
        self._path = path or socket_path()
        self._timeout_s = timeout_s
        self.server = server
        """None: the daemon of this machine."""

    def is_up(self) -> bool:
        """Whether a daemon listens."""
        connection = self._connection(self._timeout_s)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # a request reports the reason
            return True
        finally:
            connection.close()
        return True

    def get(self, *parts: str, **query: Any) -> Any:
        """Send a request that reads, and return the response."""
        return self._request("GET", parts, query=query)

    def post(self, *parts: str, body: Any = None, **query: Any) -> Any:
        """Send a request that changes something, and return the response."""
        return self._request("POST", parts, query=query, body=body)

    def delete(self, *parts: str) -> Any:
        """Send a request that removes something, and return the response."""
        return self._request("DELETE", parts)

    def lines(self, *parts: str, **query: Any) -> Iterator[bytes]:
        """Yield the lines of a response as they arrive, until it ends."""
        connection, response = self._open("GET", parts, query, None, timeout_s=None)
        try:
            _check(response)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as exc:
            raise InfrastructureFault(
                f"the connection to the daemon broke: {exc}; see `ringfence fleet status`"
            ) from exc
        finally:
            connection.close()

    def _request(
        self, method: str, parts: tuple[str, ...], *, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> Any:
        connection, response = self._open(method, parts, query or {}, body, timeout_s=self._timeout_s)
        try:
            _check(response)
            return json.loads(response.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise InfrastructureFault(
                f"the connection to the daemon broke: {exc}; see `ringfence fleet status`"
            ) from exc
        finally:
            connection.close()

    def _open(
        self,
        method: str,
        parts: tuple[str, ...],
        query: Mapping[str, Any],
        body: Any,
        *,
        timeout_s: float | None,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        url = ("" if self.server is None else self.server.path) + path_and_query(parts, query)
        connection = self._connection(timeout_s)
        headers = {"Content-Type": "application/json"}
        if self.server is not None:
            headers["Authorization"] = f"Bearer {self.server.token}"
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, url, body=content, headers=headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as exc:
            connection.close()
            if self.server is not None:
                raise InfrastructureFault(
                    f"the server {self.server.url!r} does not answer: {exc}; check the address and that it runs"
                ) from exc
            if isinstance(exc, FileNotFoundError | ConnectionRefusedError) or (
                # A daemon that is dying takes connections for a moment, and never answers them.
                isinstance(exc, ConnectionResetError) and method == "GET" and not self.is_up()
            ):
                raise NoDaemon from exc
            raise InfrastructureFault(
                f"the daemon's socket {str(self._path)!r} cannot be used: {exc}; see `ringfence fleet status`"
            ) from exc

    def _connection(self, timeout_s: float | None) -> http.client.HTTPConnection:
        server = self.server
        if server is None:
            return _Connection(self._path, timeout_s)
        if server.scheme == "https":
            return http.client.HTTPSConnection(
                server.host, server.port, timeout=timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(server.host, server.port, timeout=timeout_s)


def path_and_query(parts: tuple[str, ...], query: Mapping[str, Any]) -> str:
    """Return the path of a request with its query, from which values that are not set are left out.

    Raises:
        UsageError: A part of the path is empty.
    """
    if not all(parts):
        raise UsageError("a name is empty; check that the variable it comes from is set")
    given = {name: value for name, value in query.items() if value not in (None, [], ())}
    path = "/v1/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def check_response(status: int, content: bytes) -> None:
    """Raise the error that a response reports, as the class that its exit code names.

    Raises:
        RingfenceError: The request was refused.
    """
    if status < http.client.BAD_REQUEST:
        return
    try:
        error = json.loads(content)["error"]
        message, code = str(error["message"]), int(error["exit_code"])
    except (ValueError, KeyError, TypeError):
        text = f"the daemon refused the request: {status} {content[:300].decode(errors='replace')}"
        raise UsageError(text) from None
    kind = _KINDS.get(code)
    raise kind(message) if kind is not None else PolicyRefused(message, rule="daemon")


def _check(response: http.client.HTTPResponse) -> None:
    if response.status >= http.client.BAD_REQUEST:
        check_response(response.status, response.read(_MAX_ERROR_BYTES))


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("daemon", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with short_path(self._path) as path:
            self.sock.connect(path)
