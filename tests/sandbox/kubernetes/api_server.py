"""A small HTTP server in a thread that answers as a Kubernetes API server does, with what a test gives it."""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = tuple[int, Any]
TOKEN = "s3cret-token-of-the-test"


class ApiServer:
    """Answers by path; remembers what it was asked.

    Attributes:
        answers: By method and path: a status and a document or bytes, or a function of the request's document.
        tokens: Those that are accepted; empty accepts anyone.
        requests: Method, path and document of each request.
        headers: Sent with each answer.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Answer | Callable[[Any], Answer]] = {
            ("GET", "/version"): (200, {"gitVersion": "v1.20.2"})
        }
        self.websocket: Callable[[web.WebSocketResponse], Any] | None = None
        self.tokens: set[str] = set()
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: dict[str, str] = {}
        self.port = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body = await request.read()
        document = json.loads(body) if body else None
        self.requests.append((request.method, request.path, document))
        if (
            self.tokens
            and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens
        ):
            return self._answer(401, status(401, "Unauthorized", "Unauthorized"))
        if self.websocket is not None and request.headers.get("Upgrade") == "websocket":
            websocket = web.WebSocketResponse(protocols=["v5.channel.k8s.io"])
            await websocket.prepare(request)
            await self.websocket(websocket)
            return websocket
        found = self.answers.get((request.method, request.path))
        if found is None:
            return self._answer(404, status(404, "NotFound", f"{request.path} not found"))
        return self._answer(*(found(document) if callable(found) else found))

    def _answer(self, code: int, content: Any) -> web.Response:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return web.Response(status=code, body=body, content_type="application/json", headers=self.headers)


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """A `Status` object that reports a failure."""
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@contextmanager
def running(tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """A server on a free port of the loopback."""
    server = ApiServer()
    loop = asyncio.new_event_loop()
    is_up = threading.Event()
    is_over = asyncio.Event()

    async def serve() -> None:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", server.respond)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.port = runner.addresses[0][1]
        is_up.set()
        await is_over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert is_up.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(is_over.set)
        thread.join(10)
        loop.close()


def kubeconfig(
    file: Path, server: str, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> Path:
    """Write a kubeconfig with the context `dev` in namespace `agents`; JSON is YAML."""
    document = {
        "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u", "namespace": "agents"}}],
        "users": [{"name": "u", "user": {"token": TOKEN} if user is None else user}],
    }
    file.write_text(json.dumps(document))
    return file
