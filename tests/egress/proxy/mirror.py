"""A web server over a directory, for tests: plain on one port, TLS on another. A process of its own, as mirrors are.

Run as `python mirror.py DIRECTORY CERTIFICATE`; prints both ports, and ends with its stdin.
"""

import http.server
import json
import ssl
import sys
import threading
from functools import partial
from pathlib import Path


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files; for npm, a directory's `index.json` under its own name."""

    protocol_version = "HTTP/1.1"

    def send_head(self):
        """The index in place of a listing."""
        if Path(self.translate_path(self.path), "index.json").is_file():
            self.path = self.path.partition("?")[0].rstrip("/") + "/index.json"
        return super().send_head()

    def do_POST(self) -> None:
        """Say how much came."""
        size = 0
        if self.headers.get("Transfer-Encoding") == "chunked":
            while count := int(self.rfile.readline(), 16):
                size += len(self.rfile.read(count))
                self.rfile.readline()
            self.rfile.readline()
        else:
            size = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        body = json.dumps({"size": size, "host": self.headers["Host"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        """Keep what came as a file."""
        data = self.rfile.read(int(self.headers["Content-Length"]))
        Path(self.translate_path(self.path)).write_bytes(data)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Nothing is logged."""


def serve(directory: str, context: ssl.SSLContext | None) -> int:
    """Start one; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=directory))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return int(server.server_port)


def main() -> None:
    """Serve until stdin ends."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(sys.argv[2])
    print(json.dumps([serve(sys.argv[1], None), serve(sys.argv[1], context)]), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
