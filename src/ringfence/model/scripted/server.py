"""The HTTP server: routes, requests it got, start and stop."""

import contextlib
import json
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ringfence.errors import InfrastructureFault
from ringfence.model.scripted import wire
from ringfence.model.scripted.delivery import ScriptedResponse, stream_plan, whole_plan
from ringfence.model.scripted.progress import Due, Progress
from ringfence.model.scripted.rules import broken_rule, unmet
from ringfence.model.scripted.script import ErrorAnswer, JSONObject, Script

DUMMY_KEY: Final = "sk-ant-scripted-dummy"
"""Any credential is accepted; this one is what we send ourselves."""

_STOP_S = 3.0
_REQUEST_LIMIT_BYTES = 64 * 1024**2


@dataclass(frozen=True)
class RecordedRequest:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any
    """The JSON of the body; None if there is none."""


class ScriptedModelServer:
    """A running server; made by `serve`.

    `requests` holds every request in order, the refused ones too; `turns_done` counts turns.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self.base_url = ""
        self._progress = Progress(script)
        self.closing = anyio.Event()
        self.one_at_a_time = anyio.Lock()
        self._count = 0

    @property
    def turns_done(self) -> int:
        """How many turns of the script are over."""
        return self._progress.turn_index

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(cls, script: Script, *, port: int = 0) -> AsyncIterator["ScriptedModelServer"]:
        """Serve `script` on 127.0.0.1 while the context is open.

        Raises:
            InfrastructureFault: The port is taken.
        """
        server = cls(script)
        with _listening(port) as listener:
            server.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with _running(server._application(), listener, server.closing):
                yield server

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ],
            exception_handlers={404: self._not_found, 405: self._not_found},
        )

    async def _messages(self, request: Request) -> Response:
        try:
            body, refusal = await self._received(request)
        except ClientDisconnect:
            return Response(status_code=499)
        return refusal or _Queued(self, body)

    def answer(self, body: JSONObject) -> Response:
        """What is due now; called by one request at a time."""
        due = self._progress.due()
        if due is None:
            turns = len(self.script.turns)
            return self._error(
                400,
                "invalid_request_error",
                f"the script {str(self.script.path)!r} is exhausted after turn {turns}",
            )
        problem = unmet(due.turn.expect, body) if due.turn.expect else None
        if problem:
            return self._error(
                400, "invalid_request_error", f"{self.script.place(due.turn_index)}: {problem}"
            )
        if due.fault is not None:
            self._progress.fault_happened(due)
        if isinstance(due.fault, ErrorAnswer):
            return self._scripted_error(due.fault)
        return self._reply(due, body)

    def _reply(self, due: Due, body: JSONObject) -> Response:
        reply = wire.message(due.turn, due.turn_index, body)
        slow = due.turn.slow
        if body.get("stream"):
            plan = stream_plan(reply, due.fault, piece_chars=due.turn.piece_chars, slow=slow)
        else:
            plan = whole_plan(reply, due.fault, slow=slow)
        return ScriptedResponse(plan, on_sent=self._progress.reply_sent, request_id=self._request_id())

    async def _count_tokens(self, request: Request) -> Response:
        body, refusal = await self._received(request, needs_max_tokens=False)
        return refusal or self._json({"input_tokens": wire.estimate(body)})

    async def _models(self, request: Request) -> Response:
        await self._received(request, has_body=False)
        model = {
            "type": "model",
            "id": "scripted",
            "display_name": "Scripted",
            "created_at": "2026-01-01T00:00:00Z",
        }
        return self._json({"data": [model], "has_more": False, "first_id": "scripted", "last_id": "scripted"})

    async def _not_found(self, request: Request, _: Exception) -> Response:
        await self._received(request, has_body=False)
        return self._error(404, "not_found_error", f"Not found: {request.method} {request.url.path}")

    async def _received(
        self, request: Request, *, has_body: bool = True, needs_max_tokens: bool = True
    ) -> tuple[Any, Response | None]:
        """Note the request; its body, and the refusal if the API would refuse it."""
        raw = await _body(request) if has_body else b""
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        headers = dict(request.headers)
        self.requests.append(RecordedRequest(request.method, request.url.path, headers, body))
        if not (headers.get("x-api-key") or headers.get("authorization")):
            return body, self._error(401, "authentication_error", "x-api-key header is required")
        if not has_body:
            return body, None
        if len(raw) > _REQUEST_LIMIT_BYTES:
            return body, self._error(413, "request_too_large", "Request exceeds the maximum size")
        checked = body if needs_max_tokens or not isinstance(body, dict) else {"max_tokens": 1, **body}
        problem = broken_rule(checked)
        return body, self._error(400, "invalid_request_error", problem) if problem else None

    def _scripted_error(self, error: ErrorAnswer) -> Response:
        response = self._error(error.status, error.error_type, error.message)
        if error.retry_after is not None:
            response.headers["retry-after"] = f"{error.retry_after}"
        if error.retry_after_ms is not None:
            response.headers["retry-after-ms"] = f"{error.retry_after_ms:g}"
        response.headers.update(error.headers)
        return response

    def _error(self, status: int, error_type: str, text: str) -> Response:
        request_id = self._request_id()
        return self._json(wire.error_body(error_type, text, request_id), status=status, request_id=request_id)

    def _json(self, value: JSONObject, *, status: int = 200, request_id: str | None = None) -> Response:
        headers = {"request-id": request_id or self._request_id()}
        return Response(wire.encode(value), status, headers, media_type="application/json")

    def _request_id(self) -> str:
        self._count += 1
        return f"req_scripted_{self._count:04d}"


class _Queued(Response):
    """Answers when the request before it is over: a script is one line, whoever asks.

    Given up when the client or the server goes; a turn that did not go out whole is then due again.
    """

    def __init__(self, server: ScriptedModelServer, body: JSONObject) -> None:
        super().__init__()
        self._server = server
        self._request_body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            tasks.start_soon(self._cancel_on_close, tasks.cancel_scope)
            async with self._server.one_at_a_time:
                response = self._server.answer(self._request_body)
                await response(scope, receive, send)
            tasks.cancel_scope.cancel()

    async def _cancel_on_close(self, scope: anyio.CancelScope) -> None:
        await self._server.closing.wait()
        scope.cancel()


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _body(request: Request) -> bytes:
    """The body, read no further than one byte beyond the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _REQUEST_LIMIT_BYTES:
            break
    return bytes(body)


@contextlib.contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    # With the protocol left out asyncio does not switch Nagle's algorithm off, and each answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
        except OSError as exc:
            raise InfrastructureFault(
                f"cannot listen on port {port!r} of 127.0.0.1: {exc.strerror}; take another, or 0 for any"
            ) from exc
        yield listener


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program we run in."""
        yield


@contextlib.asynccontextmanager
async def _running(
    application: Starlette, listener: socket.socket, closing: anyio.Event
) -> AsyncIterator[None]:
    # uvicorn reports each connection that we break on purpose.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        application,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, server, listener)
        try:
            yield
        except Exception as exc:  # noqa: BLE001  # raised below: a task group would wrap the caller's error
            failure = exc
        finally:
            server.should_exit = True
            closing.set()
    if failure is not None:
        raise failure


async def _serve(server: _Server, listener: socket.socket) -> None:
    # Shielded: a cancelled uvicorn leaves its sockets open. It ends by itself soon after `should_exit`.
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listener])
