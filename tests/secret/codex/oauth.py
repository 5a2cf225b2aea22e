"""A token endpoint on the loopback, whose refresh tokens can be used once, as those of ChatGPT logins."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def access_token(number: int, lasts_s: float) -> str:
    """An unsigned web token that ends."""
    claims = {"exp": int(time.time() + lasts_s), "n": number}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"eyJhbGciOiJub25lIn0.{body}.sig{number}"


def write_login(file: Path, *, number: int = 0, lasts_s: float = -60) -> None:
    """An `auth.json` as Codex writes it."""
    tokens = {
        "id_token": f"id-{number}",
        "access_token": access_token(number, lasts_s),
        "refresh_token": f"refresh-{number}",
        "account_id": "account-1",
    }
    document = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": tokens,
        "last_refresh": "2026-01-01T00:00:00Z",
    }
    file.write_text(json.dumps(document))
    file.chmod(0o600)


@dataclass
class TokenServer:
    """What a running endpoint knows."""

    url: str = ""
    good: str = "refresh-0"
    """The one refresh token that can still be used."""
    lasts_s: float = 3600
    """How long the access tokens that it gives are good."""
    answer: tuple[int, bytes] | None = None
    """Instead of an exchange."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    """Cleared: the token is spent, and the answer waits."""
    spent: threading.Event = field(default_factory=threading.Event)
    """Set when a token was spent."""
    on_spent: Callable[[], None] = lambda: None

    def exchange(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """What the endpoint answers."""
        if self.answer is not None:
            return self.answer
        if body["refresh_token"] != self.good:
            return 401, json.dumps({"error": {"code": "refresh_token_reused", "message": "used"}}).encode()
        number = int(self.good.removeprefix("refresh-")) + 1
        self.good = f"refresh-{number}"
        fresh = {
            "access_token": access_token(number, self.lasts_s),
            "refresh_token": self.good,
            "id_token": f"id-{number}",
        }
        return 200, json.dumps(fresh).encode()


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """Serve on the loopback while the context is open."""
    state = TokenServer()
    state.hold.set()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                state.asked.append(body)
                status, answer = state.exchange(body)
            state.on_spent()
            state.spent.set()
            state.hold.wait(60)
            try:
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_address[1]}/oauth/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # how soon it ends
    thread.start()
    try:
        yield state
    finally:
        state.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
