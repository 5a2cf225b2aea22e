"""An HTTP server that records the requests it receives."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """The recorded requests, and the statuses to answer: one after the other, then 200."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    came: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def take(self) -> tuple[dict[str, str], bytes]:
        """Return the next request: headers by lower-case names, with `:path`, and the body."""
        assert self.came.acquire(timeout=60)
        return self.got.pop(0)


@contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    """Run a receiver."""
    made = Receiver(statuses=list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            made.got.append(({":path": self.path, **headers}, body))
            self.send_response(made.statuses.pop(0) if made.statuses else 200)
            self.send_header("Location", made.url)
            self.send_header("Content-Length", "0")
            self.end_headers()
            made.came.release()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    made.url = f"http://127.0.0.1:{server.server_port}/told"
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
