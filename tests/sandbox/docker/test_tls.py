"""An engine behind TLS; the stream is encrypted and decrypted without a task in between."""

import asyncio
import datetime as dt
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.sandbox.docker.conftest import SOCKET, _pump

from ringfence.errors import PolicyRefused, SandboxStartFailed
from ringfence.sandbox import Sandbox, SandboxSpec

pytestmark = pytest.mark.docker


def make_certificates(folder: Path) -> None:
    """Write `ca.pem`, `cert.pem` and `key.pem`: one self-signed certificate for 127.0.0.1, used by both ends."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "engine")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "ca.pem").write_bytes(text)
    (folder / "cert.pem").write_bytes(text)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


@asynccontextmanager
async def behind_tls(folder: Path) -> AsyncIterator[str]:
    """Serve the machine's Docker over TLS with client certificates; yield the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(SOCKET)
        writers.extend((writer, far_writer))
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of certificates that DOCKER_CERT_PATH names."""
    make_certificates(tmp_path)
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    return tmp_path


async def test_large_transfers_are_exact(image: str, certificates: Path) -> None:
    """Megabytes go both ways over TLS byte for byte, and the engine counts as another machine's."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(behind_tls(certificates))
        spec = SandboxSpec(backend="docker", image=image, engine=url)
        sandbox = await stack.enter_async_context(Sandbox.open(spec))
        data = bytes(range(256)) * 20_000
        await sandbox.write_file("/var/tmp/data", data)
        assert await sandbox.read_file("/var/tmp/data") == data
        assert (await sandbox.run(["cat", "/etc/hosts"])).stdout.startswith("127.0.0.1\tlocalhost")


async def test_read_only_workspace_is_uploaded(image: str, certificates: Path, workspace: Path) -> None:
    """A read-only workspace is uploaded, and cannot be written inside."""
    (workspace / "here").write_text("text\n")
    (workspace / "here").chmod(0o644)
    async with behind_tls(certificates) as url:
        spec = SandboxSpec(backend="docker", image=image, engine=url, workspace=workspace, mode="read_only")
        async with Sandbox.open(spec) as sandbox:
            assert (await sandbox.run(["cat", str(workspace / "here")])).stdout == "text\n"
            assert "Read-only file system" in (await sandbox.run(["touch", "made"])).stderr


async def test_bind_mode_is_refused(image: str, certificates: Path, workspace: Path) -> None:
    """An engine on the network does not see this machine's files: mode `bind` is refused."""
    async with behind_tls(certificates) as url:
        spec = SandboxSpec(backend="docker", image=image, engine=url, workspace=workspace, mode="bind")
        with pytest.raises(PolicyRefused, match="does not see this machine's files"):
            async with Sandbox.open(spec):
                pass


async def test_foreign_certificate_is_refused(
    image: str, certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No request is sent to an engine whose certificate another authority signed."""
    stranger = tmp_path_factory.mktemp("stranger")
    make_certificates(stranger)
    async with behind_tls(stranger) as url:
        with pytest.raises(SandboxStartFailed, match="certificate"):
            async with Sandbox.open(SandboxSpec(backend="docker", image=image, engine=url)):
                pass
