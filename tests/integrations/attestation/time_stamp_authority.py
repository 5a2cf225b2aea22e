"""A time-stamp authority of `openssl ts` behind an HTTP server on the loopback interface."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CONFIG = """
[tsa]
default_tsa = here
[here]
serial = {folder}/serial
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = {digests}
ess_cert_id_alg = sha256
"""


class Authority:
    """A root certificate, and a server's certificate that it vouches for."""

    def __init__(self, folder: Path, *, days: int = 30) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.root = folder / "root.pem"
        root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        root_name, name = _name(f"root {folder.name}"), _name("time-stamp server")
        root = _certificate(root_name, root_name, root_key.public_key(), days=3650)
        root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        signed_root = root.sign(root_key, hashes.SHA256())
        leaf = _certificate(name, root_name, key.public_key(), days=days)
        purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        signed = leaf.add_extension(purpose, critical=True).sign(root_key, hashes.SHA256())
        self.root.write_bytes(signed_root.public_bytes(serialization.Encoding.PEM))
        (folder / "server.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        (folder / "key.pem").write_bytes(key.private_bytes(pem, form, plain))
        (folder / "serial").write_text("01\n")

    def reply(self, query: bytes, *, digests: str = "sha256, sha512") -> bytes:
        """The response to a request; one that rejects, if its digest is not among `digests`."""
        config, asked = self.folder / "tsa.cnf", self.folder / "query"
        config.write_text(_CONFIG.format(folder=self.folder, digests=digests))
        asked.write_bytes(query)
        words = [
            "openssl",
            "ts",
            "-reply",
            "-config",
            str(config),
            "-section",
            "here",
            "-queryfile",
            str(asked),
        ]
        words += ["-inkey", str(self.folder / "key.pem"), "-signer", str(self.folder / "server.pem")]
        done = subprocess.run(words, capture_output=True, check=True, timeout=30)
        return done.stdout


def query(data: bytes) -> bytes:
    """A request of somebody else, for other data."""
    command = ["openssl", "ts", "-query", "-sha256", "-cert"]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=30).stdout


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    """Valid from 100 days ago until in `days` days, which may be negative."""
    now = datetime.now(UTC)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=now - timedelta(days=100),
        not_valid_after=now + timedelta(days=days),
    )


class Server:
    """What the server does with each request; tests change it."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.status = 200
        self.kind = "application/timestamp-reply"
        self.headers: dict[str, str] = {}
        self.url = ""
        self.is_hanging = False
        self.body = b""
        self.digests = "sha256, sha512"
        self.released = Event()

    def answer(self, request: bytes) -> bytes:
        """The body of the response."""
        return self.body or self.authority.reply(request, digests=self.digests)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """Serve on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = self.rfile.read(int(self.headers["Content-Length"]))
            if server.is_hanging:
                server.released.wait(60)
                return
            body = server.answer(request)
            self.send_response(server.status)
            for name, value in {"Content-Type": server.kind, **server.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server.url = f"http://127.0.0.1:{listening.server_port}/"
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            listening.shutdown()
            thread.join()
