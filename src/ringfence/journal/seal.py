"""The signing key and the seal that it puts on a journal.

The key is of ed25519, made on first use in `state_dir()/keys`, which no agent can read. Its library is imported when
something is signed or checked: that takes 20 ms.
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
from ringfence.journal.record import Header, encode_data, encode_line, format_time

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_NAME = "journal-ed25519"


class SigningKey:
    """Signs heads. Take it from `signing_key()`."""

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private

    @cached_property
    def public_hex(self) -> str:
        """The public key, 32 bytes in hexadecimal."""
        return self._private.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """The signature in hexadecimal."""
        return self._private.sign(message).hex()


def keys_dir() -> Path:
    """Where the keys are. Each `*.pub` in it is trusted by `verify`."""
    return state_dir() / "keys"


def key_id(public_hex: str) -> str:
    """Short name of a public key: the first 16 hexadecimal digits of its SHA-256."""
    with suppress(ValueError):
        return sha256(bytes.fromhex(public_hex)).hexdigest()[:16]
    return "malformed"


def signing_key() -> SigningKey:
    """The key of this state directory; made, once, if there is none, however many ask at the same time.

    Raises:
        RecordError: The key file is damaged, or others can read it.
        InfrastructureFault: It cannot be read or made.
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
            f"could not read or make the signing key {str(path)!r}: {exc.strerror}; {next_step(exc, is_state=True)}"
        ) from exc
    return key


def trusted_keys() -> frozenset[str]:
    """The public keys, in hexadecimal, of every `*.pub` in `keys_dir()`.

    Raises:
        RecordError: One of the files is no ed25519 public key.
    """
    return frozenset(read_public_key(path) for path in sorted(keys_dir().glob("*.pub")))


def read_public_key(path: Path) -> str:
    """The public key, in hexadecimal, in a PEM file.

    Raises:
        RecordError: There is none.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as exc:
        raise RecordError(f"the public key {str(path)!r} cannot be read: {exc.strerror}") from exc
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise RecordError(f"{str(path)!r} is no public key in PEM; give an ed25519 one") from exc
    if not isinstance(key, Ed25519PublicKey):
        raise RecordError(f"{str(path)!r} is a public key of another kind; give an ed25519 one")
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
    """The bytes that a seal signs. All that its line says is in them: no byte of it can change."""
    return f"ringfence journal seal v1\n{run_id}\n{seq}\n{time}\n{head}\n".encode()


def make_seal(key: SigningKey, run_id: str, *, seq: int, time: datetime, head: str) -> JournalSealed:
    """The event that closes a journal whose last line hashes to `head`."""
    message = seal_message(run_id, seq=seq, time=format_time(time), head=head)
    return JournalSealed(head=head, signature=key.sign(message), public_key=key.public_hex)


def seal_fault(line: bytes, header: Header, *, run_id: str, trusted: frozenset[str]) -> str | None:
    """What is wrong with the sealing line of a journal; None if nothing is."""
    try:
        seal = msgspec.json.decode(header.data, type=JournalSealed)
    except (ValueError, RecursionError) as exc:
        return f"the seal does not parse: {exc}"
    time = format_time(header.time)
    canonical = encode_line(header.seq, time, prev=header.prev, event=header.event, data=encode_data(seal))
    if line != canonical:
        return "the seal is not written as ringfence writes it: it was edited"
    if seal.head != header.prev:
        return "the seal is over another head"
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
            f"the signing key {str(path)!r} is damaged; move it away and a new one is made (rename the .pub "
            "file too, but keep it: older seals stay known by it)"
        ) from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise RecordError(
            f"the signing key {str(path)!r} is of another kind; move it away and a new one is made"
        )
    return key


def _create(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    partial = _write_partial(path, pem, mode=0o600)
    try:
        with suppress(FileExistsError):  # link fails where rename would replace: the first one wins
            os.link(partial, path)
    finally:
        partial.unlink()


def _publish(path: Path, private: "Ed25519PrivateKey") -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write_partial(path, pem, mode=0o644).replace(path)


def _write_partial(path: Path, content: bytes, *, mode: int) -> Path:
    partial = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)
    return partial
