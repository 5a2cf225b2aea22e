"""A TLS server for tests that tells back whatever it was sent, and keeps it. A process of its own, as real ones are.

Run as `python echo.py CERTIFICATE LOG`; prints its port, and ends with its stdin.
"""

import base64
import gzip
import http.server
import json
import ssl
import sys
import threading
from pathlib import Path


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers by path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Keep the request, and tell it back."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        said = self.headers.get("Authorization", "")
        request = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("latin-1"),
        }
        with Path(sys.argv[2]).open("a") as log:
            log.write(json.dumps(request) + "\n")
        answer = json.dumps({**request, "base64": base64.b64encode(b"x" + said.encode()).decode()}).encode()
        if self.path.startswith("/repository") and not said:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("?")[2])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if self.path == "/part" else 200, f"OK {said}")
        self.send_header("X-Echo", said)
        if self.path == "/names":
            self.send_header(f"X-{said.rpartition(' ')[2]}", "name")
            self.send_header(f"x-{said.rpartition(' ')[2].lower()}-lower", "name")
        if self.path == "/packed":
            answer = gzip.compress(answer)
            self.send_header("Content-Encoding", "gzip")
        if self.path == "/pieces":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for place in range(len(answer)):
                self.wfile.write(b"1\r\n" + answer[place : place + 1] + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    def do_HEAD(self) -> None:
        """As GET, without its body."""
        self.do_GET()

    def do_POST(self) -> None:
        """As GET."""
        self.do_GET()

    def log_message(self, *words: object) -> None:
        """Nothing is logged."""


def main() -> None:
    """Serve until stdin ends."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
