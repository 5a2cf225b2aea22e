"""The signers that `--sign-with` names, and the verifiers of their signatures.

`ssh:FILE` signs with a key of OpenSSH (format `sshsig`), `command:PROGRAM ARGUMENTS` with a command of the user's
(format `raw`). Neither is ever read from a project's configuration.
"""

import base64
import tempfile
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import anyio

from ringfence.errors import AuthenticationFailed, InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation import command_signature, ssh_signature
from ringfence.integrations.attestation.command_signature import PemKey, parse_command, read_pem_key
from ringfence.integrations.attestation.envelope import Signature, Signer, pae
from ringfence.integrations.attestation.local_key import LocalSigner
from ringfence.integrations.attestation.trusted_keys import (
    BARE_KEY,
    KeyVerifier,
    TrustedKey,
    read_key_file,
    read_trusted_keys,
)
from ringfence.integrations.attestation.verification import Verifier

JOURNAL = "journal"


@frozen
class SshSigner:
    """Signs with a key of OpenSSH; see `envelope.Signer`."""

    key: Path

    async def sign(self, payload_type: str, payload: bytes) -> Signature:
        """Sign an attestation.

        Raises:
            NoSshKeygen, UsageError: As `ssh_signature.sign`.
        """
        made = await ssh_signature.sign(pae(payload_type, payload), self.key)
        return Signature(keyid=made.fingerprint, sig=base64.b64encode(made.blob).decode(), format="sshsig")


@frozen
class CommandSigner:
    """Signs with a command of the user's; see `envelope.Signer`."""

    words: tuple[str, ...]

    async def sign(self, payload_type: str, payload: bytes) -> Signature:
        """Sign an attestation.

        Raises:
            InfrastructureFault: As `command_signature.sign`.
        """
        made = await command_signature.sign(pae(payload_type, payload), self.words)
        # The command does not name its key, and nothing relies on a keyid.
        name = sha256("\0".join(self.words).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        return Signature(keyid=f"command:{name}", sig=base64.b64encode(made).decode(), format="raw")


def parse_signer(text: str) -> Signer:
    """Return the signer that a value of `--sign-with` names.

    Raises:
        UsageError: The value names no signer.
    """
    kind, _, rest = text.partition(":")
    if text == JOURNAL:
        return LocalSigner()
    if kind == "ssh" and rest:
        return SshSigner(Path(rest).expanduser().absolute())
    if kind == "command":
        return CommandSigner(parse_command(rest))
    raise UsageError(
        f"{text[:100]!r} names no signer; give 'ssh:KEYFILE', 'command:PROGRAM ARGUMENTS' or 'journal'"
    )


@frozen
class SshVerifier:
    """Verifies signatures of the format `sshsig` by the keys in one file; see `verification.Verifier`."""

    file: Path
    """The file that the user named."""
    lines: bytes = field(repr=False)
    """Its allowed signers."""
    keys: tuple[TrustedKey, ...] = ()
    """The same keys with their limits, to say why one is refused; they decide nothing."""

    async def verify(self, signature: Signature, message: bytes, moments: Sequence[datetime]) -> str | None:
        """Return who signed; None if this file allows nobody to.

        Raises:
            AuthenticationFailed: The key is not valid at one of the times.
            NoSshKeygen: There is no `ssh-keygen`.
        """
        if signature.format != "sshsig":
            return None
        blob = signature.signature_bytes
        try:
            is_named = ssh_signature.fingerprint(blob) == signature.keyid
        except InfrastructureFault:
            is_named = False
        if not is_named:
            return None  # the keyid is signed by nobody, and would be printed as that of the key that signed
        with tempfile.TemporaryDirectory(prefix="ringfence-signers-") as folder:
            allowed = Path(folder) / "allowed_signers"
            await anyio.Path(allowed).write_bytes(self.lines)
            found = [await ssh_signature.verify(message, blob, allowed, at=moment) for moment in moments]
        if all(principal is not None for principal in found):
            owner = "" if found[-1] == "*" else f" of {found[-1]}"
            return f"the key {signature.keyid}{owner} ({self.file})"
        limited = (key for key in self.keys if key.fingerprint == signature.keyid)
        for key in limited:
            for moment in moments:
                if why := key.fault_at(moment):
                    raise AuthenticationFailed(f"the key {signature.keyid} ({key.source}) {why}")
        if any(principal is not None for principal in found):
            raise AuthenticationFailed(
                f"the key {signature.keyid} ({self.file}) is not valid both at the time in the statement and at that "
                "of the verification"
            )
        return None


@frozen
class PemVerifier:
    """Verifies signatures of the format `raw` by one public key; see `verification.Verifier`."""

    key: PemKey

    async def verify(self, signature: Signature, message: bytes, moments: Sequence[datetime]) -> str | None:
        """Return who signed; None if it was not this key. A key in PEM form has no limit in time."""
        del moments
        if signature.format != "raw" or not self.key.verify(message, signature.signature_bytes):
            return None
        return f"the key sha256:{self.key.key_id[:16]} ({self.key.file})"


def read_verifiers(files: Sequence[Path]) -> list[Verifier]:
    """Read the keys that a user trusts, of any kind, each for all formats of signatures that it can verify.

    A file is a public key in PEM form, a public key of OpenSSH, or a list of allowed signers (ssh-keygen(1)).

    Raises:
        ConfigurationError, UsageError, RecordError: A file cannot be read, or holds no key.
    """
    return [verifier for file in files for verifier in _read(file)]


def _read(file: Path) -> list[Verifier]:
    data = read_key_file(file)
    if data.lstrip().startswith(b"-----BEGIN PUBLIC KEY"):
        key = read_pem_key(file)
        return [PemVerifier(key), *([KeyVerifier(read_trusted_keys([file]))] if key.is_ed25519 else [])]
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    allowed = [f"* {line}" if BARE_KEY.fullmatch(line) else line for line in keys]
    text = "".join(f"{line}\n" for line in allowed).encode()
    only_authorities = bool(keys) and all("cert-authority" in line for line in keys)
    trusted = () if only_authorities else read_trusted_keys([file])
    own = [] if only_authorities else [KeyVerifier(trusted)]
    return [*own, SshVerifier(file, text, trusted)]
