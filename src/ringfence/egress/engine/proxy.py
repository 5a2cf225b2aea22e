"""Serves the filtered container engine: each connection from inside is one call, checked, logged and then rebuilt."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream

from ringfence.config.engine_access import EngineAccess
from ringfence.egress.engine.client import EngineError, EngineResponse, send_request
from ringfence.egress.engine.messages import logged_command, short_info, visible_only, without_secrets
from ringfence.egress.engine.policy import CallPolicy, Forwarded
from ringfence.egress.engine.routes import Rejected, find_call
from ringfence.egress.http.rules import BadRequest, Request
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.limiter import RateLimiter
from ringfence.egress.stream import PrefixedStream
from ringfence.egress.transfer import Transfer, transfer
from ringfence.errors import SandboxDied
from ringfence.events import Emit, EngineAnswered, EngineCalled

_STREAM_S = 3600.0
_STREAM_BYTES = 256 * 1024 * 1024
_RESPONSE_S = 60.0
_CALLS_PER_S, _BURST = 20.0, 100
_EMIT_S = 5.0
_HEADERS = ("content-type", "api-version", "docker-experimental", "ostype", "server", "builder-version")
_RAW = "application/vnd.docker.raw-stream"
_FILTERED = ("list", "images", "inspect", "info", "exec")
"""Actions whose responses are parsed and forwarded in part."""
_SWITCHED, _OK, _CREATED, _NO_CONTENT = 101, 200, 201, 204
_LOGGED_CHARS = 500


class EngineProxy:
    """Serves the engine's API to one sandbox.

    Args:
        access: The granted access.
        socket: The engine's socket.
        sandbox_id: The sandbox whose calls they are.
        emit: Records an event; returns when it is written.
        writable: Directories of the host in which processes inside can replace files.
    """

    def __init__(
        self,
        access: EngineAccess,
        socket: Path,
        *,
        sandbox_id: str,
        emit: Emit,
        writable: Sequence[Path] = (),
    ) -> None:
        self._access = access
        self._socket = socket
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._limiter = RateLimiter(_CALLS_PER_S, burst=_BURST)
        self._calls = 0
        self._policy = CallPolicy(access, socket, writable)

    async def serve(self, inside: ByteStream) -> None:
        """Serve the one request of a connection."""
        await self._limiter.wait()
        connection = HttpConnection(inside)
        try:
            request = await connection.read_request()
        except BadRequest as exc:
            await self._log_call("", "", reason=str(exc))
            await _reject(connection, exc.status, str(exc))
            return
        if request is not None:
            await self._serve_request(connection, request)

    async def _serve_request(self, connection: HttpConnection, request: Request) -> None:
        action = ""
        try:
            call = find_call(request.method, request.target)
            action = call.route.action
            forwarded = await self._policy.decide(call, request)
        except (Rejected, EngineError) as exc:
            status = exc.status if isinstance(exc, Rejected) else 502
            reason = str(exc) if isinstance(exc, Rejected) else f"the engine {exc}"
            action = action or (exc.action if isinstance(exc, Rejected) else "")
            await self._log_call(request.method, request.target, action=action, reason=reason)
            await _reject(connection, status, reason)
            return
        number = await self._log_call(request.method, request.target, action=action, forwarded=forwarded)
        await self._forward(connection, forwarded, number)

    # --- forwarding

    async def _forward(self, connection: HttpConnection, forwarded: Forwarded, number: int) -> None:
        began = time.monotonic()
        status, ended_by = 0, "cancelled"
        call = forwarded.call
        try:
            limit_s = _STREAM_S if call.route.streams else _RESPONSE_S + call.delay_s
            with anyio.move_on_after(limit_s) as clock:
                status, ended_by = await self._exchange(connection, forwarded)
            if clock.cancelled_caught:
                ended_by = "limit"
        except EngineError as exc:
            ended_by = "engine"
            await _reject(connection, 502, f"the engine {exc}")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, SandboxDied):
            ended_by = "inside"
            raise
        finally:
            with anyio.move_on_after(_EMIT_S, shield=True):
                await self._emit(
                    EngineAnswered(
                        sandbox_id=self._sandbox_id,
                        call=number,
                        status=status,
                        answer_bytes=connection.sent_bytes,
                        ended_by=ended_by,
                        duration_ms=round((time.monotonic() - began) * 1000, 3),
                    )
                )
        if ended_by not in ("closed", "engine"):
            raise anyio.BrokenResourceError

    async def _exchange(self, connection: HttpConnection, forwarded: Forwarded) -> tuple[int, str]:
        """Send the request and forward the response; return its status, and what ended it."""
        route = forwarded.call.route
        is_attached = route.action == "exec_start" and not forwarded.is_detached
        async with send_request(
            self._socket,
            route.method,
            forwarded.target,
            body=forwarded.body,
            upgrade=is_attached,
            timeout_s=_RESPONSE_S + forwarded.call.delay_s,
        ) as response:
            if is_attached and response.status == _SWITCHED:
                return response.status, await self._attach(connection, response)
            if response.status < _OK:
                raise EngineError(f"responded with {response.status}")
            if route.action in _FILTERED and response.status in (_OK, _CREATED):
                await self._send_filtered(connection, forwarded, response)
                return response.status, "closed"
            return response.status, await self._stream(connection, forwarded, response)

    async def _send_filtered(
        self, connection: HttpConnection, forwarded: Forwarded, response: EngineResponse
    ) -> None:
        """Forward the visible part of a JSON response."""
        value: Any = await response.json()
        action = forwarded.call.route.action
        if action in ("list", "images"):
            value = visible_only(value, self._access)
        elif not isinstance(value, dict):
            raise EngineError("responded with another kind of JSON")
        elif action == "inspect":
            value = without_secrets(value)
        elif action == "info":
            value = short_info(value)
        else:
            self._policy.remember_command(str(value.get("Id")), forwarded.container or "")
        await connection.respond_json(response.status, value, _headers_of(response, _HEADERS[1:]))

    async def _stream(
        self, connection: HttpConnection, forwarded: Forwarded, response: EngineResponse
    ) -> str:
        """Forward a response as it arrives, up to the limit; return what ended it."""
        await connection.start_response(response.status, _headers_of(response, _HEADERS).items())
        if forwarded.call.route.method != "HEAD" and response.status != _NO_CONTENT:
            async for piece in response.body():
                if connection.sent_bytes + len(piece) > _STREAM_BYTES:
                    return "limit"
                await connection.send(piece)
        await connection.end()
        return "closed"

    async def _attach(self, connection: HttpConnection, response: EngineResponse) -> str:
        """Connect a command and the process that started it; return what ended it."""
        content_type = response.headers.get("content-type", _RAW)
        early = await connection.switch_protocol("tcp", [("Content-Type", content_type)])
        passed = Transfer(limit_bytes=_STREAM_BYTES)
        inside = PrefixedStream(connection.stream, early)
        engine = PrefixedStream(response.connection.stream, response.connection.rest)
        await transfer(inside, engine, passed, ends_with_target=True)
        connection.sent_bytes += passed.received_bytes
        return passed.ended_by.replace("target", "engine")

    async def _log_call(
        self,
        method: str,
        target: str,
        *,
        action: str = "",
        reason: str = "",
        forwarded: Forwarded | None = None,
    ) -> int:
        """Record a call, rejected unless `forwarded` is given; return its number."""
        self._calls += 1
        number = self._calls
        command, user = logged_command(forwarded.body) if forwarded and action == "exec" else (None, None)
        await self._emit(
            EngineCalled(
                sandbox_id=self._sandbox_id,
                call=number,
                method=method[:20],
                path=target[:_LOGGED_CHARS],
                allowed=forwarded is not None,
                action=action,
                reason=reason[:_LOGGED_CHARS],
                container=forwarded.container if forwarded else None,
                command=command,
                user=user,
            )
        )
        return number


def _headers_of(response: EngineResponse, names: Sequence[str]) -> dict[str, str]:
    return {name: response.headers[name] for name in names if name in response.headers}


async def _reject(connection: HttpConnection, status: int, reason: str) -> None:
    """Respond with an error in the format that engine clients display, unless a response has begun."""
    if not connection.has_responded:
        await connection.respond_json(status, {"message": f"ringfence: {reason}"})
