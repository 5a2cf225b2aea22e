"""Certificates for TLS interception: an authority for one sandbox, whose key never leaves memory."""

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ringfence.egress.http.trust import CERTIFICATE_FILES
from ringfence.errors import ConfigurationError

_VALID_FOR = timedelta(days=30)
_VALID_BEFORE = timedelta(hours=1)
_LIMIT_BYTES = 4 * 1024 * 1024


class Authority:
    """Certifies the injection hosts of one sandbox as long as the sandbox exists.

    Args:
        hosts: The only names that it may certify, also by a critical constraint in its own certificate.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._self_signed(hosts)
        self._contexts = {host: self._context(host) for host in hosts}

    @property
    def certificate_pem(self) -> bytes:
        """The authority's certificate, which programs inside trust."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the server's TLS context for one of the hosts; it offers HTTP/1.1 only."""
        return self._contexts[host]

    def _self_signed(self, hosts: Sequence[str]) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ringfence authority of one sandbox")])
        names = [x509.DNSName(host) for host in hosts]
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        return (
            _builder(name, name, self._key.public_key())
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
            _builder(subject, self._certificate.subject, key.public_key())
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
    """Return the authorities that this machine trusts, as PEM: SSL_CERT_FILE, else a usual file of the system.

    Raises:
        ConfigurationError: There is no such file.
    """
    configured = os.environ.get("SSL_CERT_FILE")
    usual = ssl.get_default_verify_paths().openssl_cafile
    for place in (configured,) if configured else (*CERTIFICATE_FILES, usual):
        try:
            with Path(place).open("rb") as file:
                found = file.read(_LIMIT_BYTES + 1)
        except OSError:
            continue
        if len(found) <= _LIMIT_BYTES and b"BEGIN CERTIFICATE" in found:
            return found.decode("utf-8", "replace")
    raise ConfigurationError(
        f"egress.swap: no certificates of authorities are found in {configured or 'the usual places'!r}; install "
        "ca-certificates, or name their file by SSL_CERT_FILE"
    )


def outward_context(authorities: str) -> ssl.SSLContext:
    """Return the client's TLS context for the real hosts, which verifies certificate and name.

    Raises:
        ConfigurationError: `authorities` cannot be read.
    """
    try:
        context = ssl.create_default_context(cadata=_ascii_only(authorities))
    except ssl.SSLError as exc:
        raise ConfigurationError(
            f"egress.swap: this machine's certificates of authorities cannot be read ({exc.reason}); name another "
            "file by SSL_CERT_FILE"
        ) from exc
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _ascii_only(pem: str) -> str:
    """Return a bundle with only ASCII in its comments, as OpenSSL requires."""
    return pem.encode("ascii", "replace").decode("ascii")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _VALID_BEFORE)
        .not_valid_after(now + _VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """Yield a path in memory at which `content` can be read, since `ssl` loads keys from files only."""
    descriptor = os.memfd_create("ringfence", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
