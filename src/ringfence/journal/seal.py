"""The signing key, and the seal that closes a journal.

The ed25519 key is created on first use in `state_dir()/keys`, which no agent can read. Functions import its library when
they sign or verify, because the import takes 20 ms.
"""

import os
import secrets
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ringfence.config.paths import make_private_dir, state_dir
from ringfence.errors import InfrastructureFault, RecordError, next_step
from ringfence.events import JournalSealed
from ringfence.filesystem import replace_file
from ringfence.journal.record import Header, encode_data, encode_line, format_time

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_NAME = "journal-ed25519"


class SigningKey:
    """A private key that signs heads; `signing_key()` returns it."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private

    @cached_property
    def public_hex(self) -> str:
        """The public key, 32 bytes in hexadecimal."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the signature of a message in hexadecimal."""
        return self._private.sign(message).hex()


def keys_dir() -> Path:
    """Return the directory of the keys. `verify` trusts each `*.pub` in it."""
    return state_dir() / "keys"


def key_id(public_hex: str) -> str:
    """Return the short name of a public key: the first 16 hexadecimal digits of its SHA-256."""
    with suppress(ValueError):
        return sha256(bytes.fromhex(public_hex)).hexdigest()[:16]
    return "malformed"


def signing_key() -> SigningKey:
    """Return the key of this state directory; create it if there is none.

    Processes that create it at the same time all get the same key.

    Raises:
        RecordError: The key file is damaged, or others can read it.
        InfrastructureFault: The key cannot be read or created.
    """
    path = keys_dir() / _NAME
    try:
        make_private_dir(keys_dir())
        if not path.exists():
            _create(path)
        private = _load(path)
        key = SigningKey(private)
        if not path.with_suffix(".pub").exists():
            _publish(path.with_suffix(".pub"), private)
    except OSError as exc:
        raise InfrastructureFault(
            f"could not read or create the signing key {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    return key


def trusted_keys() -> frozenset[str]:
    """Return the public keys, in hexadecimal, of every `*.pub` in `keys_dir()`.

    Raises:
        RecordError: A file is not an ed25519 public key.
    """
    return frozenset(read_public_key(path) for path in sorted(keys_dir().glob("*.pub")))


def read_public_key(path: Path) -> str:
    """Return the public key of a PEM file in hexadecimal.

    Raises:
        RecordError: The file does not contain an ed25519 public key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as exc:
        raise RecordError(f"the public key {str(path)!r} cannot be read: {exc.strerror}") from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise RecordError(f"{str(path)!r} is not a public key in PEM format; give an ed25519 key") from exc
    if not isinstance(key, Ed25519PublicKey):
        raise RecordError(f"{str(path)!r} is not an ed25519 public key; give one of that kind")
    return key.public_bytes_raw().hex()


def is_signed(message: bytes, *, signature: str, public_hex: str) -> bool:
    """Whether `signature` over `message` was made with the private half of `public_hex`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_hex)).verify(
            bytes.fromhex(signature), message
        )
    except (ValueError, InvalidSignature):
        return False
    return True


def seal_message(run_id: str, *, seq: int, time: str, head: str) -> bytes:
    """Return the bytes that a seal signs. They cover everything in its line, so that no byte of it can change."""
    return f"ringfence journal seal v1\n{run_id}\n{seq}\n{time}\n{head}\n".encode()


def make_seal(key: SigningKey, run_id: str, *, seq: int, time: datetime, head: str) -> JournalSealed:
    """Return the event that closes a journal whose last line has the hash `head`."""
    message = seal_message(run_id, seq=seq, time=format_time(time), head=head)
    return JournalSealed(head=head, signature=key.sign(message), public_key=key.public_hex)


def seal_fault(line: bytes, header: Header, *, run_id: str, trusted: frozenset[str]) -> str | None:
    """Return the fault of the line that seals a journal; None if it has no fault."""
    try:
        seal = msgspec.json.decode(header.data, type=JournalSealed)
    except (ValueError, RecursionError) as exc:
        return f"the seal does not parse: {exc}"
    time = format_time(header.time)
    canonical = encode_line(header.seq, time, prev=header.prev, event=header.event, data=encode_data(seal))
    if line != canonical:
        return "the seal is not in the form that ringfence writes: it was edited"
    if seal.head != header.prev:
        return "the seal signs another head"
    if seal.public_key not in trusted:
        return "the seal was made with a key that is not trusted here"
    message = seal_message(run_id, seq=header.seq, time=time, head=seal.head)
    if not is_signed(message, signature=seal.signature, public_hex=seal.public_key):
        return "the seal's signature is wrong"
    return None


def _load(path: Path) -> "Ed25519PrivateKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if path.stat().st_mode & 0o077:
        raise RecordError(
            f"others can read the signing key {str(path)!r}; run `chmod 600` on it, or replace it"
        )
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
        raise RecordError(
            f"the signing key {str(path)!r} is damaged; move it away, and a new key is created (rename the .pub "
            "file, too, but keep it, because it verifies older seals)"
        ) from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise RecordError(
            f"the signing key {str(path)!r} is not an ed25519 key; move it away, and a new key is created"
        )
    return key


def _create(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(fd)
        with suppress(
            FileExistsError
        ):  # unlike rename, link does not replace the key of a concurrent process
            os.link(partial, path)
    finally:
        partial.unlink()


def _publish(path: Path, private: "Ed25519PrivateKey") -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    replace_file(path, pem, mode=0o644)
