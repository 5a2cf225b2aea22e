"""The certificate authorities that this machine trusts besides those of its distribution.

A company's proxy that opens TLS has one. A build on such a machine reaches nothing over https without it, and so
the image trusts what the machine trusts, says so in a label, and is another image by its hash.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ringfence.errors import InfrastructureFault

_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_OF_THE_DISTRIBUTION = Path("/usr/share/ca-certificates")
_ADDED = (Path("/usr/local/share/ca-certificates"), Path("/etc/pki/ca-trust/source/anchors"))
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s+(?P<body>[A-Za-z0-9+/=\s]{64,65536}?)-----END CERTIFICATE-----"
)
_FILE_BYTES = 8 * 1024**2
_MOST = 64


def host_authorities(
    *,
    bundle: Path = _BUNDLE,
    of_the_distribution: Path = _OF_THE_DISTRIBUTION,
    added: Iterable[Path] = _ADDED,
) -> Mapping[str, bytes]:
    """Certificates (PEM) by file name, the same for the same certificates.

    Args:
        bundle: All that the machine trusts, as `update-ca-certificates(8)` writes it.
        of_the_distribution: Those that the distribution brings; without it, the bundle says nothing.
        added: Where administrators put their own.

    Raises:
        InfrastructureFault: There are more than can be meant.
    """
    found: set[bytes] = set()
    for folder in added:
        found |= _in_files(folder)
    if of_the_distribution.is_dir():
        found |= _in_file(bundle) - _in_files(of_the_distribution)
    if len(found) > _MOST:
        raise InfrastructureFault(
            f"this machine trusts {len(found)} authorities besides its distribution's, more than {_MOST}; "
            "see to /usr/local/share/ca-certificates, or build with --without-host-ca"
        )
    return {f"{hashlib.sha256(body).hexdigest()[:16]}.crt": _pem(body) for body in sorted(found)}


def _in_files(folder: Path) -> set[bytes]:
    if not folder.is_dir():
        return set()
    found: set[bytes] = set()
    for file in folder.rglob("*"):
        if file.suffix in (".crt", ".pem", ".cer"):
            found |= _in_file(file)
    return found


def _in_file(file: Path) -> set[bytes]:
    """The bodies of a file's certificates, without white space, to compare them by."""
    try:
        with file.open("rb") as stream:
            data = stream.read(_FILE_BYTES)
    except OSError:
        return set()  # what we may not read, we cannot trust
    return {b"".join(match["body"].split()) for match in _CERTIFICATE.finditer(data)}


def _pem(body: bytes) -> bytes:
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""))
