"""Requests to the container engine on its Unix socket, each on a connection of its own, everything bounded."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import h11
from anyio.abc import SocketStream

from ringfence.errors import InfrastructureFault, SandboxStartFailed

_JSON_LIMIT = 8 * 1024 * 1024
_HEAD_S = 30.0
_READ = 64 * 1024
_PLACES = ("/var/run/docker.sock", "/run/podman/podman.sock")
_USERS_PLACES = ("docker.sock", "podman/podman.sock")


class EngineGone(Exception):
    """The engine did not answer as it should; the text says how. Becomes a 502 for who asked."""


@dataclass
class Answer:
    """The head of an answer; the body is still to be read."""

    status: int
    headers: dict[str, str]
    """By lower-case names."""
    http: h11.Connection
    stream: SocketStream

    async def body(self) -> AsyncIterator[bytes]:
        """The body, in pieces."""
        while True:
            event = await _next_event(self.http, self.stream)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return

    async def json(self) -> Any:
        """The whole body as JSON.

        Raises:
            EngineGone: It is none, or larger than any there should be.
        """
        data = bytearray()
        async for piece in self.body():
            data += piece
            if len(data) > _JSON_LIMIT:
                raise EngineGone(f"answered with more than {_JSON_LIMIT} bytes")
        try:
            return json.loads(data or b"null")
        except (ValueError, RecursionError) as exc:
            raise EngineGone("answered with what is no JSON") from exc


@asynccontextmanager
async def asked(
    socket: Path,
    method: str,
    target: str,
    *,
    body: bytes = b"",
    upgrade: bool = False,
    patience_s: float = _HEAD_S,
) -> AsyncIterator[Answer]:
    """Ask, and hold the connection while the answer is read.

    Args:
        socket: The engine's.
        method: As in the table of routes.
        target: Built anew, never what somebody inside sent.
        body: JSON; empty for none.
        upgrade: Ask for the connection itself, after the answer's head.
        patience_s: For the answer's head.

    Raises:
        EngineGone: It cannot be reached, or does not speak HTTP.
    """
    try:
        with anyio.fail_after(_HEAD_S):
            stream = await anyio.connect_unix(socket)
    except (OSError, TimeoutError) as exc:
        reason = getattr(exc, "strerror", None) or "no answer"
        raise EngineGone(f"cannot be reached on {str(socket)!r}: {reason}") from exc
    async with stream:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)
        headers = [("Host", "docker"), ("User-Agent", "ringfence")]
        headers += [("Connection", "Upgrade"), ("Upgrade", "tcp")] if upgrade else [("Connection", "close")]
        if body or method == "POST":
            headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        request = http.send(h11.Request(method=method, target=target, headers=headers)) or b""
        request += (http.send(h11.Data(data=body)) or b"") + (http.send(h11.EndOfMessage()) or b"")
        try:
            with anyio.fail_after(patience_s):
                await stream.send(request)
                head = await _next_event(http, stream)
        except TimeoutError as exc:
            raise EngineGone(f"has not answered for {patience_s:g} s") from exc
        except anyio.BrokenResourceError as exc:
            raise EngineGone("closed the connection") from exc
        if not isinstance(head, h11.Response | h11.InformationalResponse):
            raise EngineGone("closed the connection")
        found = {name.decode("ascii", "replace"): value.decode("latin-1") for name, value in head.headers}
        yield Answer(head.status_code, found, http, stream)


async def _next_event(http: h11.Connection, stream: SocketStream) -> object:
    while True:
        try:
            event = http.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await stream.receive(_READ)
            except anyio.EndOfStream:
                data = b""
            http.receive_data(data)
        except (h11.RemoteProtocolError, anyio.BrokenResourceError) as exc:
            raise EngineGone(f"broke off: {exc}") from exc


async def ask_json(socket: Path, target: str) -> tuple[int, Any]:
    """The status and the JSON that a GET comes to. Raises `EngineGone`."""
    async with asked(socket, "GET", target) as answer:
        return answer.status, await answer.json()


def find_socket(wanted: Path | None) -> Path:
    """The engine's socket: the one that is named, else DOCKER_HOST's, else where Docker and Podman have theirs.

    Raises:
        SandboxStartFailed: There is none; with where it was looked for.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if wanted is None and host:
        if not host.startswith("unix://"):
            raise SandboxStartFailed(
                f"engine access needs the engine's Unix socket, and DOCKER_HOST={host!r} is none; set engine.socket"
            )
        wanted = Path(host.removeprefix("unix://"))
    user = os.environ.get("XDG_RUNTIME_DIR")
    places = [Path(place) for place in _PLACES] + [Path(user, place) for place in _USERS_PLACES if user]
    for place in [wanted] if wanted is not None else places:
        if place.is_socket():
            return place
    tried = ", ".join(str(place) for place in ([wanted] if wanted is not None else places))
    raise SandboxStartFailed(
        f"engine access was asked for, and there is no container engine (looked for {tried}); "
        "start one, or take `engine` out of the configuration"
    )


async def check_engine(socket: Path) -> None:
    """See that an engine answers.

    Raises:
        InfrastructureFault: None does.
    """
    try:
        async with asked(socket, "GET", "/_ping") as answer:
            status = answer.status
    except EngineGone as exc:
        hint = "; is your user in the engine's group?" if "Permission denied" in str(exc) else ""
        raise InfrastructureFault(f"engine access was asked for, and the engine {exc}{hint}") from exc
    if status != 200:
        raise InfrastructureFault(
            f"engine access was asked for, and {str(socket)!r} answers a ping with {status}; is it a container engine?"
        )
