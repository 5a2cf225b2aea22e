"""An authority of one sandbox's own, which vouches for its swapped hosts alone. Its key never leaves memory."""

import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ringfence.errors import ConfigurationError

_LASTS = timedelta(days=30)
_EARLIER = timedelta(hours=1)
_LIMIT_BYTES = 4 * 1024 * 1024
_USUAL_PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)


class Authority:
    """Made for one sandbox, forgotten with it.

    Args:
        hosts: The names that it may vouch for; a critical constraint in its certificate says so, too.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._own(hosts)
        self._contexts = {host: self._context(host) for host in hosts}

    @property
    def certificate_pem(self) -> bytes:
        """What those inside trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """The server's side of TLS for one of the hosts; HTTP/1.1 is all that it offers."""
        return self._contexts[host]

    def _own(self, hosts: Sequence[str]) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ringfence authority of one sandbox")])
        names = [x509.DNSName(host) for host in hosts]
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        return (
            _begun(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.NameConstraints(names, None), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def _context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "ringfence")])
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        certificate = (
            _begun(subject, self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        with _readable(pem + certificate.public_bytes(serialization.Encoding.PEM)) as path:
            context.load_cert_chain(path)
        return context


def system_authorities() -> str:
    """Whom this machine trusts, as PEM: SSL_CERT_FILE, else where systems keep it.

    Raises:
        ConfigurationError: There is no such file.
    """
    said = os.environ.get("SSL_CERT_FILE")
    usual = ssl.get_default_verify_paths().openssl_cafile
    for place in (said,) if said else (*_USUAL_PLACES, usual):
        try:
            with Path(place).open("rb") as file:
                found = file.read(_LIMIT_BYTES + 1)
        except OSError:
            continue
        if len(found) <= _LIMIT_BYTES and b"BEGIN CERTIFICATE" in found:
            return found.decode("utf-8", "replace")
    raise ConfigurationError(
        f"egress.swap: no certificates of authorities are found in {said or 'the usual places'!r}; install "
        "ca-certificates, or name their file by SSL_CERT_FILE"
    )


def outward_context(authorities: str) -> ssl.SSLContext:
    """The client's side of TLS to the real hosts: verified, with the name.

    Raises:
        ConfigurationError: What is trusted cannot be read.
    """
    try:
        context = ssl.create_default_context(cadata=_certificates_alone(authorities))
    except ssl.SSLError as exc:
        raise ConfigurationError(
            f"egress.swap: this machine's certificates of authorities cannot be read ({exc.reason}); name another "
            "file by SSL_CERT_FILE"
        ) from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _certificates_alone(pem: str) -> str:
    """A bundle without the comments in it, which OpenSSL takes as ASCII only."""
    return pem.encode("ascii", "replace").decode("ascii")


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path at which `content` can be read: `ssl` loads keys from files only. In memory, where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ringfence", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # readable by us alone
        file.write(content)
        file.flush()
        yield file.name
