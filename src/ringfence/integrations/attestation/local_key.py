"""Signs attestations with the key of the state directory, which also seals journals.

What it signs can never be taken for a seal: a seal's message begins with `ringfence journal`, and an attestation's with
`DSSEv1`.
"""

import base64

from ringfence.integrations.attestation.envelope import Signature, make_signature, pae
from ringfence.journal.seal import signing_key

_KIND = b"ssh-ed25519"


class LocalSigner:
    """The signer with the ed25519 key of this state directory; see `envelope.Signer`."""

    async def sign(self, payload_type: str, payload: bytes) -> Signature:
        """Sign an attestation.

        Raises:
            RecordError, InfrastructureFault: As `signing_key`.
        """
        key = signing_key()
        signature = bytes.fromhex(key.sign(pae(payload_type, payload)))
        return make_signature(signature, public_key=openssh_key(key.public_hex), signature_format="ed25519")


def openssh_key(public_hex: str) -> str:
    """Return an ed25519 public key as OpenSSH writes it (RFC 8709, section 4).

    Args:
        public_hex: Its 32 bytes in hexadecimal.
    """
    parts = (_KIND, bytes.fromhex(public_hex))
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return f"{_KIND.decode()} {base64.b64encode(blob).decode()}"
