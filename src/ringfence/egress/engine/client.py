"""Sends requests to the container engine on its Unix socket: one per connection, bounded in size and time."""

import errno
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import h11

from ringfence.egress.http.client_connection import ClientConnection
from ringfence.errors import InfrastructureFault, SandboxStartFailed

_JSON_LIMIT = 8 * 1024 * 1024
_TIMEOUT_S = 30.0
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")
_USER_SOCKETS = ("docker.sock", "podman/podman.sock")


class EngineError(Exception):
    """The engine did not respond as it should. The text continues a sentence that begins with "the engine".

    Args:
        message: What happened.
        errno: The error number of the failed system call, if one failed.
    """

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass
class EngineResponse:
    """The head of a response; the body is still to be read."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    connection: ClientConnection

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces."""
        with _translated():
            while not isinstance(event := await self.connection.receive(), h11.EndOfMessage):
                if isinstance(event, h11.Data):
                    yield bytes(event.data)

    async def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            EngineError: It is not JSON, or larger than any response should be.
        """
        data = bytearray()
        async for piece in self.body():
            data += piece
            if len(data) > _JSON_LIMIT:
                raise EngineError(f"responded with more than {_JSON_LIMIT} bytes")
        try:
            return json.loads(data or b"null")
        except (ValueError, RecursionError) as exc:
            raise EngineError("responded with invalid JSON") from exc


@asynccontextmanager
async def send_request(
    socket: Path,
    method: str,
    target: str,
    *,
    body: bytes = b"",
    upgrade: bool = False,
    timeout_s: float = _TIMEOUT_S,
) -> AsyncIterator[EngineResponse]:
    """Send a request, and keep the connection open while the response is read.

    Args:
        socket: The engine's socket.
        method: The method of the route.
        target: The rebuilt target, never the one that a process inside sent.
        body: The body as JSON; empty for none.
        upgrade: Whether to request the raw connection after the head of the response.
        timeout_s: The limit for the head of the response.

    Raises:
        EngineError: The engine cannot be reached, or does not speak HTTP.
    """
    try:
        with anyio.fail_after(_TIMEOUT_S):
            stream = await anyio.connect_unix(socket)
    except (OSError, TimeoutError) as exc:
        reason = getattr(exc, "strerror", None) or "no response"
        raise EngineError(
            f"cannot be reached on {str(socket)!r}: {reason}", errno=getattr(exc, "errno", None)
        ) from exc
    async with stream:
        connection = ClientConnection(stream)
        headers = [("Host", "docker"), ("User-Agent", "ringfence")]
        headers += [("Connection", "Upgrade"), ("Upgrade", "tcp")] if upgrade else [("Connection", "close")]
        if body or method == "POST":
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        events = (
            h11.Request(method=method, target=target, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        with _translated():
            try:
                with anyio.fail_after(timeout_s):
                    await connection.send(*events)
                    head = await connection.receive()
            except TimeoutError as exc:
                raise EngineError(f"has not responded for {timeout_s:g} s") from exc
        assert isinstance(head, h11.Response | h11.InformationalResponse)
        found = {name.decode("ascii", "replace"): value.decode("latin-1") for name, value in head.headers}
        yield EngineResponse(head.status_code, found, connection)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (h11.RemoteProtocolError, anyio.BrokenResourceError) as exc:
        raise EngineError(f"broke off: {str(exc) or 'it closed the connection'}") from exc


async def get_json(socket: Path, target: str) -> tuple[int, Any]:
    """Send a GET; return the status and the JSON of the response. Raises `EngineError`."""
    async with send_request(socket, "GET", target) as response:
        return response.status, await response.json()


def find_socket(wanted: Path | None) -> Path:
    """Find the engine's socket: the configured one, else that of DOCKER_HOST, else a usual path of Docker or Podman.

    Raises:
        SandboxStartFailed: There is none; the text names the places that were searched.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if wanted is None and host:
        if not host.startswith("unix://"):
            raise SandboxStartFailed(
                f"engine access needs the engine's Unix socket, and DOCKER_HOST={host!r} is not one; set engine.socket"
            )
        wanted = Path(host.removeprefix("unix://"))
    user = os.environ.get("XDG_RUNTIME_DIR")
    usual = [Path(place) for place in _SOCKETS] + [Path(user, place) for place in _USER_SOCKETS if user]
    places = [wanted] if wanted is not None else usual
    for place in places:
        if place.is_socket():
            return place
    raise SandboxStartFailed(
        f"engine access is configured, and there is no container engine (looked for {', '.join(map(str, places))}); "
        "start one, or take `engine` out of the configuration"
    )


async def check_engine(socket: Path) -> None:
    """Check that an engine responds.

    Raises:
        InfrastructureFault: None does.
    """
    try:
        async with send_request(socket, "GET", "/_ping") as response:
            status = response.status
    except EngineError as exc:
        hint = "; is your user in the engine's group?" if exc.errno == errno.EACCES else ""
        raise InfrastructureFault(f"engine access is configured, and the engine {exc}{hint}") from exc
    if status != 200:
        raise InfrastructureFault(
            f"engine access is configured, but {str(socket)!r} answers a ping with {status}; is it a container engine?"
        )
