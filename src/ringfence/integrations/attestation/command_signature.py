"""Signatures by a command of the user (a key management service, a hardware token), and their verification by PEM keys.

The command reads the bytes to sign from stdin and writes the signature to stdout. The key decides how a signature is
verified, and each kind of key in one way only, so that nobody can choose a weaker one:

=============  ===================================================================
ed25519        64 bytes (RFC 8032)
ECDSA P-256    ASN.1 DER (`Ecdsa-Sig-Value`) over SHA-256
RSA 2048-8192  PSS over SHA-256, MGF1 with SHA-256, a salt of any length
=============  ===================================================================
"""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.process import run_process

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

MAX_SIGNATURE_BYTES = 16 * 1024
_ERROR_BYTES = 64 * 1024
_SIGN_S = 120.0
_SHOWN_CHARS = 500
_PEM_BYTES = 64 * 1024
_RSA_BITS = range(2048, 8193)


def parse_command(text: str) -> tuple[str, ...]:
    """Return the argument list of a command; no shell ever reads it.

    Raises:
        UsageError: It is empty, has an open quote, or names its program by a relative path.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as exc:
        raise UsageError(f"the signing command {text!r} cannot be read: {exc}; close its quotes") from exc
    if not words:
        raise UsageError("the signing command is empty; name a program and its arguments after `command:`")
    if "/" in words[0] and not Path(words[0]).is_absolute():
        raise UsageError(
            f"the signing command's program {words[0]!r} is a relative path; name its absolute path, or a program of "
            "the system"
        )
    if Path(words[0]).is_absolute() and not os.access(words[0], os.X_OK):
        raise UsageError(
            f"the signing command's program {words[0]!r} cannot be executed; name one that exists"
        )
    return words


async def sign(
    message: bytes,
    words: tuple[str, ...],
    *,
    timeout_s: float = _SIGN_S,
) -> bytes:
    """Return the signature that a command makes of a message.

    Args:
        message: The bytes that the command reads from stdin.
        words: From `parse_command`.
        timeout_s: Then the command is ended.

    Raises:
        InfrastructureFault: The command failed, hung, or printed no signature; the text has the end of its stderr.
    """
    done = await run_process(
        words,
        stdin=message,
        cwd=Path("/"),  # nothing of the directory that an agent worked in has an effect on it
        timeout_s=timeout_s,
        output_limit_bytes=_ERROR_BYTES,
        stop_at_limit=True,
    )
    name = words[0]
    stderr = " ".join(done.stderr.decode("utf-8", "replace").split())[-_SHOWN_CHARS:]
    said = repr(stderr) if stderr else "it printed no error"
    if done.timed_out:
        raise InfrastructureFault(f"the signing command {name!r} took longer than {timeout_s:g} s: {said}")
    if done.truncated or len(done.stdout) > MAX_SIGNATURE_BYTES:
        raise InfrastructureFault(
            f"the signing command {name!r} printed more than {MAX_SIGNATURE_BYTES} bytes; it has to print the "
            "signature alone"
        )
    if not done.ok:
        raise InfrastructureFault(
            f"the signing command {name!r} failed with {done.exit_code} (it runs in the directory '/'): {said}"
        )
    if not done.stdout:
        raise InfrastructureFault(f"the signing command {name!r} printed no signature: {said}")
    return done.stdout


@frozen
class PemKey:
    """A public key that is trusted."""

    public: "PublicKeyTypes"
    key_id: str
    """SHA-256 of its DER form (SubjectPublicKeyInfo), in hexadecimal."""
    file: Path

    @property
    def is_ed25519(self) -> bool:
        """Whether it is of the kind with which records are sealed."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return isinstance(self.public, Ed25519PublicKey)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Whether the signature of a message was made with the private half of this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

        public, sha = self.public, hashes.SHA256()
        try:
            match public:
                case ed25519.Ed25519PublicKey():
                    public.verify(signature, message)
                case ec.EllipticCurvePublicKey():
                    public.verify(signature, message, ec.ECDSA(sha))
                case rsa.RSAPublicKey():
                    scheme = padding.PSS(padding.MGF1(sha), padding.PSS.AUTO)
                    public.verify(signature, message, scheme, sha)
                case _:  # read_pem_key returns no other
                    return False
        except InvalidSignature:
            return False
        return True


def read_pem_key(file: Path) -> PemKey:
    """Read a public key in PEM form (`-----BEGIN PUBLIC KEY-----`).

    Raises:
        UsageError: The file has none of a kind that is verified.
    """
    from hashlib import sha256

    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

    try:
        with file.open("rb") as opened:
            public = load_pem_public_key(opened.read(_PEM_BYTES))
    except OSError as exc:
        raise UsageError(
            f"the public key {str(file)!r} cannot be read: {os.strerror(exc.errno or 0)}"
        ) from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise UsageError(
            f"{str(file)!r} is no public key in PEM form; `openssl pkey -pubout` prints one"
        ) from exc
    is_known = (
        isinstance(public, ed25519.Ed25519PublicKey)
        or (isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1))
        or (isinstance(public, rsa.RSAPublicKey) and public.key_size in _RSA_BITS)
    )
    if not is_known:
        raise UsageError(
            f"the public key {str(file)!r} is none that is verified; use ed25519, ECDSA on P-256, or RSA of 2048 to "
            "8192 bits (PSS)"
        )
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return PemKey(public, sha256(der).hexdigest(), file)
