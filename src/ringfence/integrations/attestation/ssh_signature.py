"""Signatures of OpenSSH keys (PROTOCOL.sshsig), made and verified by the system's own `ssh-keygen`.

`ssh-keygen` signs with key files, with keys in an ssh-agent and with security keys, and decides by an allowed signers
file (ssh-keygen(1), "ALLOWED SIGNERS") who may sign: principals, namespaces, periods of validity,
certificate authorities. Ringfence neither parses these keys nor that file.
"""

import binascii
import os
import struct
import tempfile
from base64 import b64decode, b64encode
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.process import ProcessResult, host_program, run_process

NAMESPACE = "ringfence-attestation"
"""The namespace of signatures: a signature that the key made for git or for a file is not one of a statement."""
MAX_SIGNATURE_BYTES = 64 * 1024
_MAGIC = b"SSHSIG"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_SIGN_S = 120.0
"""A person may have to touch a security key."""
_VERIFY_S = 30.0
_OUTPUT_BYTES = 256 * 1024
_MAX_PRINCIPALS = 32


class NoSshKeygen(InfrastructureFault):
    """This machine has no `ssh-keygen`, which alone can make and verify signatures of SSH keys."""


@frozen
class SshSignature:
    """A signature in the binary form of PROTOCOL.sshsig."""

    blob: bytes
    fingerprint: str
    """Of the key, as `ssh-keygen -l` prints it: `SHA256:...`."""


def is_ssh_signature(blob: bytes) -> bool:
    """Whether a signature claims to be one of an SSH key."""
    return blob.startswith(_MAGIC)


async def sign(message: bytes, key: Path) -> SshSignature:
    """Sign a message with an SSH key.

    Args:
        message: The message.
        key: The file of the private key, or of a public key whose private half is in the ssh-agent.

    Raises:
        NoSshKeygen: There is no `ssh-keygen`.
        UsageError: The key cannot be read or used.
    """
    if not await anyio.Path(key).is_file():
        raise UsageError(f"no SSH key is in {str(key)!r}; name the file of a key after `ssh:`")
    done = await _run("-Y", "sign", "-f", str(key), "-n", NAMESPACE, stdin=message, timeout_s=_SIGN_S)
    if not done.ok:
        raise UsageError(
            f"`ssh-keygen` could not sign with {str(key)!r}: {_last_line(done)}; a key with a passphrase has to be in "
            "the ssh-agent (`ssh-add`)"
        )
    blob = _from_armor(done.stdout)
    return SshSignature(blob, fingerprint(blob))


async def verify(
    message: bytes,
    blob: bytes,
    allowed_signers: Path,
    *,
    at: datetime | None = None,
) -> str | None:
    """Return the principal who signed a message; None if the file allows no such signature.

    Args:
        message: The message.
        blob: The signature, from anybody.
        allowed_signers: Who may sign; a file that whoever wrote the message cannot write.
        at: The time at which the key has to be valid; None is now.

    Raises:
        NoSshKeygen: There is no `ssh-keygen`.
        UsageError: The file cannot be read.
    """
    _check_readable(allowed_signers)
    if len(blob) > MAX_SIGNATURE_BYTES or not is_ssh_signature(blob):
        return None
    time = f"verify-time={(at or datetime.now(UTC)).astimezone(UTC):%Y%m%d%H%M%S}Z"
    with tempfile.TemporaryDirectory(prefix="ringfence-signature-") as folder:
        file = Path(folder) / "signature"
        file.write_text(_to_armor(blob))
        common = ("-f", str(allowed_signers), "-s", str(file), "-O", time)
        for principal in (await _find_principals(*common))[:_MAX_PRINCIPALS]:
            words = ("-Y", "verify", *common, "-n", NAMESPACE, "-I", principal)
            if (await _run(*words, stdin=message)).ok:
                return principal
    return None


async def _find_principals(*options: str) -> list[str]:
    found = await _run("-Y", "find-principals", *options)
    return found.stdout.decode("utf-8", "replace").splitlines() if found.ok else []


async def _run(*arguments: str, stdin: bytes = b"", timeout_s: float = _VERIFY_S) -> ProcessResult:
    try:
        program = host_program("ssh-keygen")
    except InfrastructureFault as exc:
        raise NoSshKeygen(
            "signatures of SSH keys need `ssh-keygen`, which this machine lacks; install OpenSSH's client "
            "(Debian: openssh-client)"
        ) from exc
    return await run_process(
        [program, *arguments], stdin=stdin, timeout_s=timeout_s, output_limit_bytes=_OUTPUT_BYTES
    )


def _check_readable(file: Path) -> None:
    if not file.is_file() or not os.access(file, os.R_OK):
        raise UsageError(f"the file of allowed signers {str(file)!r} cannot be read; name one that exists")


def _last_line(done: ProcessResult) -> str:
    if done.timed_out:
        return f"it took longer than {_SIGN_S:g} s"
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return repr(lines[-1][:300]) if lines else f"it ended with {done.exit_code}"


def _from_armor(text: bytes) -> bytes:
    """Return the binary form of a signature that `ssh-keygen` printed."""
    lines = text.decode("ascii", "replace").split()
    body = "".join(lines).removeprefix(_BEGIN.replace(" ", "")).removesuffix(_END.replace(" ", ""))
    try:
        blob = b64decode(body, validate=True)
    except binascii.Error:
        blob = b""
    if not is_ssh_signature(blob) or len(blob) > MAX_SIGNATURE_BYTES:
        raise InfrastructureFault("`ssh-keygen -Y sign` printed no signature; check that it is OpenSSH's")
    return blob


def _to_armor(blob: bytes) -> str:
    text = b64encode(blob).decode()
    lines = [text[start : start + 70] for start in range(0, len(text), 70)]
    return "\n".join((_BEGIN, *lines, _END, ""))


def fingerprint(blob: bytes) -> str:
    """Return the fingerprint of a signature's public key: magic, version, then the key as a string (RFC 4251)."""
    start = len(_MAGIC) + 4
    try:
        (length,) = struct.unpack_from(">I", blob, start)
    except struct.error as exc:
        raise InfrastructureFault("`ssh-keygen -Y sign` printed a signature without a key") from exc
    key = blob[start + 4 : start + 4 + length]
    return f"SHA256:{b64encode(sha256(key).digest()).decode().rstrip('=')}"
