"""Time-stamps of RFC 3161: a time-stamp server signs the digest of an envelope together with its own time.

The library builds requests, and verifies tokens against given authorities: signature, chain at the time of the token,
extended key usage, nonce and digest. What a server sends is hostile until then.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from ringfence.egress.http.client import HttpClient, HttpResponse, UpstreamError, origin_of
from ringfence.errors import ConfigurationError, InfrastructureFault, UsageError
from ringfence.frozen import frozen

if TYPE_CHECKING:
    from cryptography.x509 import Certificate
    from rfc3161_client import TimeStampResponse

MAX_TOKEN_BYTES = 64 * 1024
_TIMEOUT_S = 30.0
_CERTIFICATES_BYTES = 1024**2
_MAX_CERTIFICATES = 64
_HEADERS = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
_REPLY = "application/timestamp-reply"
_MAX_URL = 2000


class TimestampRefused(InfrastructureFault):
    """A time-stamp is not the requested one, or no trusted server made it."""


@frozen
class Timestamp:
    """A verified time-stamp."""

    time: datetime
    """When the envelope existed, by the server's clock."""
    server: str
    """The name in the server's certificate (RFC 4514)."""
    response: bytes
    """The server's response (`TimeStampResp`), which holds the token."""


def check_server(url: str) -> str:
    """Return the URL of a time-stamp server.

    Raises:
        UsageError: It is none, or it holds a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > _MAX_URL:
        raise UsageError(f"{url[:100]!r} is no URL of a time-stamp server; give one with https:// or http://")
    if "@" in parts.netloc:
        raise UsageError(
            f"the URL of the time-stamp server {origin_of(url)!r} holds a user name; servers that need one are not "
            "supported"
        )
    return url


def read_certificates(file: Path) -> "tuple[Certificate, ...]":
    """Read the certificates of time-stamp authorities that are trusted, in PEM form.

    Raises:
        UsageError: The file has none.
    """
    from cryptography.x509 import load_pem_x509_certificates

    try:
        with file.open("rb") as opened:
            found = load_pem_x509_certificates(opened.read(_CERTIFICATES_BYTES))
    except OSError as exc:
        raise UsageError(
            f"the certificates of the time-stamp server {str(file)!r} cannot be read: {os.strerror(exc.errno or 0)}"
        ) from exc
    except ValueError as exc:
        raise UsageError(
            f"{str(file)!r} has no certificate in PEM form; give that of the server's authority"
        ) from exc
    return tuple(found[:_MAX_CERTIFICATES])


async def request_timestamp(envelope: bytes, url: str, authorities: "tuple[Certificate, ...]") -> Timestamp:
    """Request a time-stamp of an envelope, and verify it.

    Args:
        envelope: The envelope's bytes. The server hears their SHA-256 only.
        url: The server, from `check_server`.
        authorities: From `read_certificates`.

    Raises:
        TimestampRefused: The response is none of this request, or no trusted server signed it.
        InfrastructureFault: The server cannot be reached, hangs, or sends too much.
        ConfigurationError: The extra is not installed.
    """
    _require_library()
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    request = TimestampRequestBuilder().data(envelope).hash_algorithm(HashAlgorithm.SHA256).build()
    try:
        with anyio.fail_after(_TIMEOUT_S):
            response = await _post(url, request.as_bytes())
    except TimeoutError as exc:
        raise InfrastructureFault(
            f"the time-stamp server {origin_of(url)} did not answer within {_TIMEOUT_S:g} s; try again"
        ) from exc
    return verify_timestamp(envelope, response, authorities, nonce=request.nonce)


def verify_timestamp(
    envelope: bytes, response: bytes, authorities: "tuple[Certificate, ...]", *, nonce: int | None = None
) -> Timestamp:
    """Verify a time-stamp of an envelope, offline.

    Args:
        envelope: The envelope's bytes.
        response: The server's response, from anybody.
        authorities: From `read_certificates`: authorities, or certificates of servers themselves.
        nonce: The nonce of the request, while it is known.

    Raises:
        TimestampRefused: It is no time-stamp of this envelope by a server that these certificates vouch for.
        ConfigurationError: The extra is not installed.
    """
    _require_library()
    from rfc3161_client import PKIStatus, VerificationError, VerifierBuilder

    parsed = _parse(response)
    if parsed.status != PKIStatus.GRANTED:
        raise TimestampRefused(
            f"the time-stamp server refused with status {parsed.status} {_short(parsed.status_string)}; "
            "see its documentation"
        )
    verifier = VerifierBuilder(roots=list(authorities), nonce=nonce).build()
    try:
        # By the message, so that the token's own digest algorithm is a strong one and is applied.
        verifier.verify_message(parsed, envelope)
        info = parsed.tst_info
        return Timestamp(info.gen_time, _server(parsed), response)
    except (VerificationError, ValueError) as exc:
        raise TimestampRefused(
            f"the time-stamp is not valid for this envelope: {_short(exc)}; check --tsa-certificate, and that the "
            "envelope is the one that was stamped"
        ) from exc


async def _post(url: str, request: bytes) -> bytes:
    client = HttpClient()
    try:
        response = await client.send("POST", url, headers=_HEADERS, body=request)
        try:
            return await _read_body(response, origin_of(url))
        finally:
            await response.aclose()
    except UpstreamError as exc:
        raise InfrastructureFault(f"no time-stamp: {exc}") from exc
    finally:
        with anyio.CancelScope(shield=True):
            await client.aclose()


async def _read_body(response: HttpResponse, origin: str) -> bytes:
    kind = {name.lower(): value for name, value in response.headers}.get("content-type", "")
    if response.status != 200 or kind.partition(";")[0].strip().lower() != _REPLY:
        raise InfrastructureFault(
            f"{origin} answers with status {response.status} and {kind[:100]!r}, which is no time-stamp; check the URL"
        )
    body = bytearray()
    async for piece in response.body():
        body += piece
        if len(body) > MAX_TOKEN_BYTES:
            raise InfrastructureFault(
                f"{origin} sends more than {MAX_TOKEN_BYTES} bytes as a time-stamp; check the URL"
            )
    return bytes(body)


def _parse(response: bytes) -> "TimeStampResponse":
    from rfc3161_client import decode_timestamp_response

    try:
        if len(response) > MAX_TOKEN_BYTES:
            raise ValueError(f"it has more than {MAX_TOKEN_BYTES} bytes")
        return decode_timestamp_response(response)
    except ValueError as exc:
        raise TimestampRefused(
            f"this is no response of a time-stamp server: {_short(exc)}; request another"
        ) from exc


def _server(parsed: "TimeStampResponse") -> str:
    """Return the subject of the certificate that made the signature; the verifier has checked that it is there."""
    from cryptography.x509 import load_der_x509_certificate

    (signer,) = parsed.signed_data.signer_infos
    for der in parsed.signed_data.certificates:
        certificate = load_der_x509_certificate(der)
        if (certificate.issuer, certificate.serial_number) == (signer.issuer, signer.serial_number):
            return certificate.subject.rfc4514_string()
    raise TimestampRefused("the time-stamp does not have its server's certificate; request another")


def _short(cause: object) -> str:
    return repr(" ".join(str(cause).split())[:200])


def _require_library() -> None:
    from importlib.util import find_spec

    if find_spec("rfc3161_client") is None:
        raise ConfigurationError(
            "time-stamps need rfc3161-client; `pip install 'ringfence[attest]'` installs it"
        )
