"""The envelope of an attestation: a payload and its signatures, in the format DSSE.

Sources: https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md and `protocol.md` beside it. A signature
covers the pre-authentication encoding of the payload's type and bytes (`pae`). The payload is signed as it is and is
never encoded anew, so what a verifier reads is what was signed.

Each signature has two fields beside those of DSSE, which other readers of DSSE ignore: `format`, which tells how
`sig` was made, and `publicKey`, by which a file can be checked for damage without a key. Neither is trusted, nor is
`keyid`: the keys that count, and how their signatures are verified, are the verifier's own (`verification.Verifier`).

The file is one line of JSON, and only the form that `encode_envelope` writes is accepted. Otherwise bytes could change
that no signature covers, such as spaces or an unknown field.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, Protocol

import msgspec

from ringfence.errors import ConfigurationError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
"""Source: https://github.com/in-toto/attestation/blob/v1.1.0/spec/v1/envelope.md."""
MAX_PAYLOAD_BYTES = 64 * 1024**2
MAX_ENVELOPE_BYTES = MAX_PAYLOAD_BYTES * 4 // 3 + 4 * 1024**2
"""The largest file that is read: a payload in base64, and its signatures."""
MAX_SIGNATURES = 16
_MAX_SIGNATURE_CHARS = 128 * 1024
_KEYID = re.compile(r"[!-~]{1,200}")

SignatureFormat = Literal["ed25519", "raw", "sshsig"]
"""How `sig` was made: `ed25519`, 64 bytes over `pae` (RFC 8032), with the key's fingerprint as `keyid`; `sshsig` by a
key of OpenSSH and `raw` by a command, which have no public key in the envelope (`signers`). A further format
needs a `Signer`, a `verification.Verifier` and, if its public key is in the envelope, an entry in
`verification.FORMATS`."""


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """One signature of an envelope."""

    keyid: str
    """The key. With a `public_key` its fingerprint, as `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""
    sig: str
    """The signature in base64."""
    format: SignatureFormat
    public_key: str | None = None
    """The public key as OpenSSH writes it, without a comment: `ssh-ed25519 AAAA...`; None if the signer has none."""

    @property
    def signature_bytes(self) -> bytes:
        """The decoded signature."""
        return _decode_base64(self.sig, "sig")


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A payload and the signatures over it."""

    payload_type: str
    payload: str
    """The payload in base64."""
    signatures: tuple[Signature, ...]

    @property
    def payload_bytes(self) -> bytes:
        """The bytes that were signed, as part of `pae`."""
        return _decode_base64(self.payload, "payload")


class Signer(Protocol):
    """Signs an attestation with one key. `LocalSigner` is the signer with the key of this state directory.

    A further signer is a class with this method; `make_envelope` takes any number of them, each with another key.
    """

    async def sign(self, payload_type: str, payload: bytes) -> Signature:
        """Sign `pae(payload_type, payload)`, and return the signature with its public key.

        Raises:
            RingfenceError: The key cannot be used. No signature was made.
        """


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding, which is what a signature covers."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def make_signature(signature: bytes, *, public_key: str, signature_format: SignatureFormat) -> Signature:
    """Return a signature with its public key as it stands in an envelope.

    Args:
        signature: The signature's bytes.
        public_key: The public key as OpenSSH writes it; a comment is left out.
        signature_format: How the signature was made.
    """
    key = " ".join(public_key.split()[:2])
    text = base64.b64encode(signature).decode()
    return Signature(keyid=fingerprint(key), sig=text, format=signature_format, public_key=key)


async def make_envelope(payload: bytes, signers: Sequence[Signer]) -> bytes:
    """Have a payload signed by each signer, and return the envelope's file.

    Raises:
        RingfenceError: A signer failed; there is no envelope then.
    """
    signatures = [await signer.sign(PAYLOAD_TYPE, payload) for signer in signers]
    return encode_envelope(Envelope(PAYLOAD_TYPE, base64.b64encode(payload).decode(), tuple(signatures)))


def encode_envelope(envelope: Envelope) -> bytes:
    """Return the envelope as a file: one line of JSON."""
    return msgspec.json.encode(envelope) + b"\n"


def parse_envelope(data: bytes, *, name: str) -> Envelope:
    """Parse the file of an envelope. Nothing in it is verified.

    Args:
        data: The file's content.
        name: The file's name, for errors.

    Raises:
        ConfigurationError: It is not an envelope in the form that `encode_envelope` writes, or it exceeds a bound.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise ConfigurationError(f"{name!r} is larger than {MAX_ENVELOPE_BYTES} bytes; it is no attestation")
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
        _check_envelope(envelope)
    except ValueError as exc:  # of which msgspec.ValidationError is one
        raise ConfigurationError(
            f"{name!r} is not an attestation: {exc}; name a file that `ringfence runs attest` wrote"
        ) from exc
    if encode_envelope(envelope) != data:
        raise ConfigurationError(
            f"{name!r} is not in the form that ringfence writes: it was edited; get the file anew"
        )
    return envelope


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key in OpenSSH's format, as `ssh-keygen -l` prints it.

    Raises:
        ValueError: It is not a public key in OpenSSH's format.
    """
    kind, _, text = public_key.partition(" ")
    blob = _decode_base64(text, "publicKey")
    if blob[4 : 4 + len(kind)] != kind.encode() or blob[:4] != len(kind).to_bytes(4, "big"):
        raise ValueError(f"the public key {public_key[:100]!r} is not in OpenSSH's format")
    return "SHA256:" + base64.b64encode(sha256(blob).digest()).decode().rstrip("=")


def _check_envelope(envelope: Envelope) -> None:
    if envelope.payload_type != PAYLOAD_TYPE:
        raise ValueError(f"its payloadType is {envelope.payload_type[:100]!r}, not {PAYLOAD_TYPE!r}")
    if not 1 <= len(envelope.signatures) <= MAX_SIGNATURES:
        raise ValueError(f"it has {len(envelope.signatures)} signatures; 1 to {MAX_SIGNATURES} are accepted")
    if len({each.keyid for each in envelope.signatures}) < len(envelope.signatures):
        raise ValueError("two of its signatures are by one key")
    for each in envelope.signatures:
        _check_signature(each)
    _decode_base64(envelope.payload, "payload")


def _check_signature(signature: Signature) -> None:
    keyid, key = signature.keyid, signature.public_key
    if len(signature.sig) > _MAX_SIGNATURE_CHARS or len(key or "") > _MAX_SIGNATURE_CHARS:
        raise ValueError(f"a signature or key is longer than {_MAX_SIGNATURE_CHARS} characters")
    if not _KEYID.fullmatch(keyid):
        raise ValueError(f"the keyid {keyid[:100]!r} is not 1 to 200 visible characters of ASCII")
    _decode_base64(signature.sig, "sig")
    if key is None and signature.format == "ed25519":
        raise ValueError(f"the signature of {keyid!r} has no publicKey")
    if key is not None and fingerprint(key) != keyid:
        raise ValueError(f"the keyid {keyid!r} is not the fingerprint of its publicKey")


def _decode_base64(text: str, what: str) -> bytes:
    """Decode base64 of the standard alphabet in its one canonical form."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"{what} is not base64") from exc
    if base64.b64encode(data).decode() != text:
        raise ValueError(f"{what} is not canonical base64")
    return data
