"""Verifies an attestation: its signatures by trusted keys, its statement, and the tree that it describes.

It needs neither a network nor a state directory, and writes nothing. `check_signatures` and `judge_signatures` are the
parts about signatures; `verify_attestation` is the whole, and its result lists what is proved and what the signer only
claims.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ringfence.errors import AuthenticationFailed, RecordError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.envelope import Envelope, Signature, SignatureFormat, pae
from ringfence.integrations.attestation.trust import is_ed25519

FORMATS: Mapping[SignatureFormat, Callable[[Signature, bytes], bool]] = {"ed25519": is_ed25519}
"""For each format whose public key is in the envelope: whether a signature over a message was made by that key."""


class Verifier(Protocol):
    """Trusts some keys, and verifies their signatures. `trust.KeyVerifier` is the one for `--key`."""

    async def verify(self, signature: Signature, message: bytes, moments: Sequence[datetime]) -> str | None:
        """Return who signed, in words for the user; None if no trusted key did.

        Args:
            signature: From anybody. Neither its keyid nor its public key or format may decide what is trusted.
            message: What it has to cover.
            moments: Times at which the key has to be valid.

        Raises:
            AuthenticationFailed: A key of this verifier signed, and is not valid at one of the times.
        """


@frozen
class JudgedSignature:
    """A signature, and whether it counts."""

    signature: Signature
    signer: str | None
    """Who made it, as a verifier knows; None if it does not count."""
    fault: str = ""
    """Why it does not count."""


def check_signatures(envelope: Envelope, *, name: str) -> None:
    """Check that every signature with a public key in the envelope is over this payload, whoever has that key.

    Raises:
        RecordError: A signature is wrong: the statement or the signature was changed.
    """
    message = pae(envelope.payload_type, envelope.payload_bytes)
    for each in envelope.signatures:
        if each.public_key is not None and not FORMATS[each.format](each, message):
            raise RecordError(
                f"{name!r} was changed after it was signed: the signature of {each.keyid} is wrong; get the file anew"
            )


async def judge_signatures(
    envelope: Envelope,
    verifiers: Sequence[Verifier],
    *,
    issued_at: datetime,
    now: datetime,
    proved_at: datetime | None = None,
    name: str,
) -> tuple[JudgedSignature, ...]:
    """Find which signatures of an envelope count.

    A key with a limit in time must be valid at `issued_at`, which only the signer claims, and at the time by which the
    signature is known to exist: `proved_at` or, without it, now.

    Args:
        envelope: The parsed envelope.
        verifiers: Who is trusted; none: no signature counts.
        issued_at: The time in the statement.
        now: The present time.
        proved_at: A time at which the signatures existed, as an anchor proves.
        name: The file's name, for errors.

    Returns:
        All signatures, at least one of which counts if there are verifiers.

    Raises:
        AuthenticationFailed: No trusted key signed it, or each that did is not valid at these times.
    """
    message = pae(envelope.payload_type, envelope.payload_bytes)
    moments = (issued_at, proved_at or now)
    judged = tuple([await _judge(each, verifiers, message, moments) for each in envelope.signatures])
    if verifiers and all(each.signer is None for each in judged):
        faults = "; ".join(each.fault for each in judged)
        raise AuthenticationFailed(f"{name!r} is not signed by a trusted key: {faults}")
    return judged


async def _judge(
    signature: Signature, verifiers: Sequence[Verifier], message: bytes, moments: Sequence[datetime]
) -> JudgedSignature:
    fault = f"the key {signature.keyid} is unknown; name its public key by --key if you trust it"
    for verifier in verifiers:
        try:
            signer = await verifier.verify(signature, message, moments)
        except AuthenticationFailed as exc:
            fault = str(exc)
            continue
        if signer is not None:
            return JudgedSignature(signature, signer)
    return JudgedSignature(signature, None, fault)
