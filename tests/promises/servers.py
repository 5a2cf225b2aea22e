"""Servers on loopback that tests look into."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Got:
    """A request that a server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)


@dataclass
class Server:
    """A web server that answers everything alike."""

    port: int = 0
    status: int = 200
    body: bytes = b"page\n"
    headers: dict[str, str] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serving(**fields: Any) -> Iterator[Server]:
    """Serve on loopback."""
    server = Server(**fields)

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            """Keep the request, and answer it."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            server.got.append(Got(self.command, self.path, headers, body))
            self.send_response(server.status)
            for name, value in {"Content-Length": str(len(server.body)), **server.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(server.body)

        do_GET = do_POST = do_HEAD = do_PUT = answer  # noqa: N815  # the names that the base class looks for

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=[0.05], daemon=True)
        thread.start()
        yield server
        listening.shutdown()
        thread.join()


@contextmanager
def kept_port() -> Iterator[int]:
    """A port on loopback that nobody listens on, and that the kernel gives to nobody else meanwhile."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])
