"""A small shop: takes orders, keeps them in Redis, and tells how it does on a metrics page."""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import redis

STORE = redis.Redis(os.environ.get("REDIS_HOST", "127.0.0.1"), 6379, socket_timeout=2)
taken = failed = 0


def take_order() -> str | None:
    """Keep an order; why it could not be kept, or None."""
    global taken, failed
    try:
        STORE.incr("orders")
        STORE.set("order:last", "x" * 4096)
    except redis.RedisError as error:
        failed += 1
        print(f"ERROR order not kept: {error}", file=sys.stderr, flush=True)
        return str(error)
    taken += 1
    return None


class Shop(BaseHTTPRequestHandler):
    """POST /orders, GET /metrics, GET /healthz."""

    def do_GET(self) -> None:
        """The metrics page, and whether the process is there at all."""
        if self.path == "/metrics":
            self.answer(200, f"shop_orders_taken_total {taken}\nshop_orders_failed_total {failed}\n")
        elif self.path == "/healthz":
            self.answer(200, "alive\n")
        else:
            self.answer(404, "no such page\n")

    def do_POST(self) -> None:
        """Take an order."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/orders":
            self.answer(404, "no such page\n")
            return
        problem = take_order()
        self.answer(201 if problem is None else 503, f"{problem or 'order taken'}\n")

    def answer(self, status: int, text: str) -> None:
        """Say something."""
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Errors are logged where they happen; requests are not."""


ThreadingHTTPServer(("0.0.0.0", 8080), Shop).serve_forever()
