"""Talking to the daemon: plain HTTP on its socket, with nothing that takes long to import."""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ringfence.config.paths import state_dir
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    PolicyRefused,
    RingfenceError,
    UsageError,
)
from ringfence.filesystem import short_path

_TIMEOUT_S = 30.0
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
    """Where a state directory's daemon listens."""
    return (state or state_dir()) / "fleet" / "daemon.sock"


class FleetClient:
    """A fleet's daemon, from outside.

    Args:
        path: Its socket; None: that of the state directory.
        timeout_s: How long an answer may take.

    Raises:
        UsageError: By every method: it refuses what is asked; or no daemon is running.
        InfrastructureFault: By every method: it broke off.
    """

    def __init__(self, path: Path | None = None, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._path = path or socket_path()
        self._timeout_s = timeout_s

    def is_up(self) -> bool:
        """Whether a daemon listens."""
        connection = _Connection(self._path, self._timeout_s)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # asked anything, it says why
            return True
        finally:
            connection.close()
        return True

    def get(self, *parts: str, **query: Any) -> Any:
        """What it answers to a question."""
        return self._ask("GET", parts, query=query)

    def post(self, *parts: str, body: Any = None, **query: Any) -> Any:
        """What it answers to an order."""
        return self._ask("POST", parts, query=query, body=body)

    def delete(self, *parts: str) -> Any:
        """What it answers to a removal."""
        return self._ask("DELETE", parts)

    def lines(self, *parts: str, **query: Any) -> Iterator[bytes]:
        """An answer line by line, for as long as it goes on."""
        connection, response = self._open("GET", parts, query, None, timeout_s=None)
        try:
            self._check(response)
            while line := response.readline():
                yield line
        except (OSError, http.client.HTTPException) as exc:
            raise InfrastructureFault(f"the daemon broke off: {exc}; see `ringfence fleet status`") from exc
        finally:
            connection.close()

    def _ask(
        self, method: str, parts: tuple[str, ...], *, query: Mapping[str, Any] | None = None, body: Any = None
    ) -> Any:
        connection, response = self._open(method, parts, query or {}, body, timeout_s=self._timeout_s)
        try:
            self._check(response)
            return json.loads(response.read() or b"null")
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise InfrastructureFault(f"the daemon broke off: {exc}; see `ringfence fleet status`") from exc
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
        if not all(parts):
            raise UsageError("a name is empty; is the variable set that it comes from?")
        said = {name: value for name, value in query.items() if value not in (None, [], ())}
        url = "/v1/" + "/".join(quote(part, safe="") for part in parts)
        if said:
            url += "?" + urlencode(said, doseq=True)
        connection = _Connection(self._path, timeout_s)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, url, body=content, headers={"Content-Type": "application/json"})
            return connection, connection.getresponse()
        except (FileNotFoundError, ConnectionRefusedError) as exc:
            connection.close()
            raise NoDaemon from exc
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            raise InfrastructureFault(
                f"the daemon's socket {str(self._path)!r} cannot be used: {exc}; see `ringfence fleet status`"
            ) from exc

    @staticmethod
    def _check(response: http.client.HTTPResponse) -> None:
        if response.status < http.client.BAD_REQUEST:
            return
        content = response.read(1024 * 1024)
        try:
            error = json.loads(content)["error"]
            message, code = str(error["message"]), int(error["exit_code"])
        except (ValueError, KeyError, TypeError):
            text = f"the daemon refuses: {response.status} {content[:300].decode(errors='replace')}"
            raise UsageError(text) from None
        kind = _KINDS.get(code)
        raise kind(message) if kind is not None else PolicyRefused(message, rule="daemon")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__("daemon", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with short_path(self._path) as path:
            self.sock.connect(path)
