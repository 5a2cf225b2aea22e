"""The HTTP server: routes, requests it got, start and stop."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ringfence.frozen import frozen
from ringfence.model.scripted.answering import Answering
from ringfence.model.scripted.asked import Asked
from ringfence.model.scripted.blocks import encode, estimate
from ringfence.model.scripted.dialect import CHAT, DIALECTS, MESSAGES, Dialect, Refusal
from ringfence.model.scripted.listening import listening, running
from ringfence.model.scripted.script import JSONObject, Script

DUMMY_KEY: Final = "sk-ant-scripted-dummy"
"""Any credential is accepted; this one is what we send ourselves."""

_REQUEST_LIMIT_BYTES = 64 * 1024**2
_CONVERSATION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "thread-id")
"""By which the clients name their conversation."""


@frozen
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

    `requests` holds every request in order, the refused ones too; `turns_done` counts turns of `script`, if it has no
    cases.
    """

    def __init__(self, script: Script | None, named: Mapping[str, Script]) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self.base_url = ""
        self.closing = anyio.Event()
        self.answering = Answering(script, named)

    @property
    def turns_done(self) -> int:
        """How many turns of the server's own script are over; 0 if it has cases."""
        return self.answering.turns_done

    @classmethod
    @contextlib.asynccontextmanager
    async def serve(
        cls, script: Script | None = None, *, port: int = 0, named: Mapping[str, Script] | None = None
    ) -> AsyncIterator["ScriptedModelServer"]:
        """Serve on 127.0.0.1 while the context is open.

        Args:
            script: For all requests whose prompt carries none; None: those are answered 400.
            port: 0: any that is free.
            named: Scripts that a prompt may name.

        Raises:
            InfrastructureFault: The port is taken.
        """
        server = cls(script, named or {})
        with listening(port) as listener:
            server.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with running(server._application(), listener, server.closing):
                yield server

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                *(Route(dialect.path, self._reply, methods=["POST"]) for dialect in DIALECTS),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
            ],
            exception_handlers={404: self._not_found, 405: self._not_found},
        )

    async def _reply(self, request: Request) -> Response:
        dialect = _dialect_of(request)
        try:
            body, refusal = await self._received(request, dialect)
        except ClientDisconnect:
            return Response(status_code=499)
        if refusal is not None:
            return refusal
        conversation = next(filter(None, map(request.headers.get, _CONVERSATION_HEADERS)), "")
        return _Answer(self, dialect, body, dialect.asked(body), conversation)

    async def _count_tokens(self, request: Request) -> Response:
        body, refusal = await self._received(request, MESSAGES, needs_max_tokens=False)
        return refusal or self._json({"input_tokens": estimate(body)}, MESSAGES)

    async def _models(self, request: Request) -> Response:
        dialect = _dialect_of(request)
        _, refusal = await self._received(request, dialect, has_body=False)
        return refusal or self._json(_MESSAGES_MODELS if dialect is MESSAGES else _OPENAI_MODELS, dialect)

    async def _not_found(self, request: Request, _: Exception) -> Response:
        dialect = _dialect_of(request)
        _, refusal = await self._received(request, dialect, has_body=False)
        if refusal is not None:
            return refusal
        if (
            "upgrade" in request.headers
        ):  # codex asks for a WebSocket first, and takes no for an answer by 426
            return self._error(dialect, Refusal(426, "WebSockets are not spoken here; use plain HTTP"))
        return self._error(dialect, Refusal(404, f"Not found: {request.method} {request.url.path}"))

    async def _received(
        self, request: Request, dialect: Dialect, *, has_body: bool = True, needs_max_tokens: bool = True
    ) -> tuple[Any, Response | None]:
        """Note the request; its body, and the refusal if the API would refuse it."""
        raw = await _body(request) if has_body else b""
        try:
            body = json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            body = None
        headers = dict(request.headers)
        self.requests.append(RecordedRequest(request.method, request.url.path, headers, body))
        if not (headers.get("x-api-key") or headers.get("authorization")):
            wanted = "x-api-key" if dialect is MESSAGES else "authorization"
            return body, self._error(dialect, Refusal(401, f"{wanted} header is required"))
        if not has_body:
            return body, None
        if len(raw) > _REQUEST_LIMIT_BYTES:
            return body, self._error(dialect, Refusal(413, "Request exceeds the maximum size"))
        checked = body if needs_max_tokens or not isinstance(body, dict) else {"max_tokens": 1, **body}
        problem = dialect.broken_rule(checked)
        return body, self._error(dialect, problem) if problem else None

    def _error(self, dialect: Dialect, refusal: Refusal) -> Response:
        return self.answering.error(dialect, refusal)

    def _json(self, value: JSONObject, dialect: Dialect) -> Response:
        headers = {dialect.request_id_header: self.answering.request_id()}
        return Response(encode(value), 200, headers, media_type="application/json")


_MESSAGES_MODEL = {
    "type": "model",
    "id": "scripted",
    "display_name": "Scripted",
    "created_at": "2026-01-01T00:00:00Z",
}
_MESSAGES_MODELS = {
    "data": [_MESSAGES_MODEL],
    "has_more": False,
    "first_id": "scripted",
    "last_id": "scripted",
}
_OPENAI_MODEL = {"id": "scripted", "object": "model", "created": 1_767_225_600, "owned_by": "ringfence"}
_OPENAI_MODELS = {"object": "list", "data": [_OPENAI_MODEL]}


def _dialect_of(request: Request) -> Dialect:
    """By the path; where it does not tell, by how the client shows its key."""
    for dialect in DIALECTS:
        if request.url.path.startswith(dialect.path):
            return dialect
    is_messages = "x-api-key" in request.headers or "anthropic-version" in request.headers
    return MESSAGES if is_messages or "authorization" not in request.headers else CHAT


class _Answer(Response):
    """An answer that is worked out when it is this request's turn.

    Given up when the client or the server goes; a turn that did not go out whole is then due again.
    """

    def __init__(
        self, server: ScriptedModelServer, dialect: Dialect, body: JSONObject, asked: Asked, conversation: str
    ) -> None:
        super().__init__()
        self._server = server
        self._question = (dialect, body, asked, conversation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_disconnect, receive, tasks.cancel_scope)
            tasks.start_soon(self._cancel_on_close, tasks.cancel_scope)
            async with self._server.answering.answer(*self._question) as response:
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
