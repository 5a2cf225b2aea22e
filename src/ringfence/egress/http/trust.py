"""The authorities whose certificates this machine trusts, for every TLS connection of the host to the outside."""

import os
import ssl
from functools import lru_cache
from pathlib import Path

import anyio.to_thread

CERTIFICATE_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS
)
"""Files in which systems store the authorities that they trust."""


async def verified_context() -> ssl.SSLContext:
    """Return a TLS context that trusts SSL_CERT_FILE and SSL_CERT_DIR, or else the authorities of this system."""
    paths = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return await anyio.to_thread.run_sync(_trusting_context, *paths)


@lru_cache(maxsize=4)
def _trusting_context(file: str | None, directory: str | None) -> ssl.SSLContext:
    if file or directory:
        return ssl.create_default_context(cafile=file or None, capath=directory or None)
    paths = ssl.get_default_verify_paths()
    places = (paths.openssl_cafile, paths.openssl_capath)
    has_default = any(Path(place).exists() for place in places)
    files = (file for file in CERTIFICATE_FILES if Path(file).is_file())
    return ssl.create_default_context(cafile=None if has_default else next(files, None))
