"""The keys that a verifier trusts, read from the files that he names.

A file is a public key in PEM format (`journal-ed25519.pub`), a public key of OpenSSH (`id_ed25519.pub`), or a list of
them with limits: the format `allowed_signers` of ssh-keygen(1), section ALLOWED SIGNERS.
"""

import base64
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from ringfence.errors import AuthenticationFailed, ConfigurationError, RecordError, UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.envelope import Signature, fingerprint
from ringfence.integrations.attestation.local_key import openssh_key
from ringfence.integrations.attestation.ssh_signature import NAMESPACE
from ringfence.journal.layout import open_regular
from ringfence.journal.seal import is_signed, read_public_key

_MAX_BYTES = 1024**2
_ED25519_BLOB_BYTES = 51
"""Two lengths of 4 bytes, `ssh-ed25519`, and the key of 32 bytes."""
_KEY_TYPE = r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[A-Za-z0-9@.-]+"
BARE_KEY = re.compile(rf"({_KEY_TYPE})[ \t]+([A-Za-z0-9+/=]+)(?:[ \t].*)?")
"""A line of a `.pub` file of OpenSSH: type, key, comment."""
_OPTION = r'[A-Za-z-]+(?:="[^"]*")?'
_LINE = re.compile(
    rf'("[^"]+"|\S+)[ \t]+(?:({_OPTION}(?:,{_OPTION})*)[ \t]+)?({_KEY_TYPE})[ \t]+([A-Za-z0-9+/=]+)(?:[ \t].*)?'
)
_EACH_OPTION = re.compile(r'([A-Za-z-]+)(?:="([^"]*)")?')
_TIME = re.compile(r"(\d{8})(?:(\d{4})(\d\d)?)?(Z?)")


@frozen
class TrustedKey:
    """A key that a verifier trusts to sign attestations."""

    public_key: str
    """As OpenSSH writes it, without a comment."""
    source: str
    """The file, with its line in a list."""
    principals: str = ""
    """To whom the list says that the key belongs."""
    valid_after: datetime | None = None
    valid_before: datetime | None = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint, which is the `keyid` of its signatures."""
        return fingerprint(self.public_key)

    def fault_at(self, moment: datetime) -> str | None:
        """Return why the key is not valid at a time; None if it is."""
        if self.valid_after is not None and moment < self.valid_after:
            return f"is valid only after {_shown(self.valid_after)}"
        if self.valid_before is not None and moment > self.valid_before:
            return (
                f"expired at {_shown(self.valid_before)}; a time stamp from before (--anchor tsa:URL when it is made) "
                "proves that it was signed in time"
            )
        return None


@frozen
class KeyVerifier:
    """Verifies signatures of the format `ed25519` by a list of keys; see `verification.Verifier`."""

    keys: tuple[TrustedKey, ...]

    async def verify(self, signature: Signature, message: bytes, moments: Sequence[datetime]) -> str | None:
        """Return who signed; None if it was none of these keys.

        Raises:
            AuthenticationFailed: Each entry of the key excludes one of the times.
        """
        keys = [key for key in self.keys if key.public_key == signature.public_key]
        if not keys or signature.format != "ed25519" or not is_ed25519(signature, message):
            return None
        for key in keys:
            if not any(key.fault_at(moment) for moment in moments):
                owner = f" of {key.principals}" if key.principals else ""
                return f"the key {signature.keyid}{owner} ({key.source})"
        key = keys[-1]
        why = next(found for moment in moments if (found := key.fault_at(moment)))
        raise AuthenticationFailed(f"the key {signature.keyid} ({key.source}) {why}")


def is_ed25519(signature: Signature, message: bytes) -> bool:
    """Whether a signature of the format `ed25519` over a message was made with the private half of its public key."""
    kind, _, text = (signature.public_key or "").partition(" ")
    blob = base64.b64decode(text)
    if kind != "ssh-ed25519" or len(blob) != _ED25519_BLOB_BYTES:
        return False
    return is_signed(message, signature=signature.signature_bytes.hex(), public_hex=blob[-32:].hex())


def read_trusted_keys(files: Iterable[Path]) -> tuple[TrustedKey, ...]:
    """Read the keys of all these files.

    Raises:
        ConfigurationError: A file holds no key, a line of it does not parse, or a PEM file is of another kind of key.
    """
    return tuple(key for file in files for key in _read(file))


def check_outside(tree: Path, files: Iterable[Path]) -> None:
    """Refuse files of keys in the tree that they are to vouch for: the author of the tree could have written them.

    Args:
        tree: The tree that is verified.
        files: Keys, allowed signers, certificates.

    Raises:
        UsageError: One lies in it.
    """
    top = os.path.realpath(tree)
    for file in files:
        named = os.path.join(os.path.realpath(file.parent), file.name)  # noqa: PTH118 -- a link may be its last part
        if any(Path(path).is_relative_to(top) for path in (named, os.path.realpath(file))):
            raise UsageError(
                f"{str(file)!r} lies in the tree {str(tree)!r} that it is to vouch for, whose author chose it; "
                "name a copy that comes from elsewhere, such as `git show origin/main:FILE`"
            )


def read_key_file(file: Path) -> bytes:
    """Read a file of keys, of any format.

    Raises:
        ConfigurationError: It cannot be read, or is too large.
    """
    try:
        with open_regular(file.resolve()) as opened:
            data = opened.read(_MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigurationError(
            f"the key file cannot be read: {exc.strerror}; name another", file=file
        ) from exc
    if len(data) > _MAX_BYTES:
        raise ConfigurationError(f"a file of keys has at most {_MAX_BYTES} bytes; name another", file=file)
    return data


def _read(file: Path) -> list[TrustedKey]:
    try:
        text = read_key_file(file).decode()
    except UnicodeDecodeError as exc:
        raise ConfigurationError("it is not a public key; name a .pub file", file=file) from exc
    if "PRIVATE KEY-----" in text:
        raise ConfigurationError("it holds a private key; name the public one (.pub)", file=file)
    if text.lstrip().startswith("-----BEGIN"):
        return [TrustedKey(openssh_key(_read_pem(file)), str(file))]
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [_parse(line, file, number) for number, line in lines if line and not line.startswith("#")]
    keys = [key for key in found if key is not None]
    if found and not keys:
        raise ConfigurationError(
            f"none of its keys may sign attestations: their `namespaces` leave out {NAMESPACE!r}, or they are "
            "authorities of certificates; add it to `namespaces`, or name another file",
            file=file,
        )
    if not keys:
        raise ConfigurationError("it holds no public key; name a .pub file or a list of them", file=file)
    return keys


def _read_pem(file: Path) -> str:
    try:
        return read_public_key(file)
    except RecordError as exc:
        raise ConfigurationError(str(exc)) from exc


def _parse(line: str, file: Path, number: int) -> TrustedKey | None:
    """Parse a line; None for a key that is trusted for other purposes."""
    try:
        if bare := BARE_KEY.fullmatch(line):
            key = f"{bare[1]} {bare[2]}"
            fingerprint(key)
            return TrustedKey(key, f"{file}:{number}")
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError("it is not a line of a list of keys")
        principals, options, kind, blob = match.groups()
        given = _EACH_OPTION.findall(options or "")
        key = f"{kind} {blob}"
        fingerprint(key)
        return _limited(key, f"{file}:{number}", principals.strip('"'), given)
    except (ValueError, OverflowError) as exc:
        raise ConfigurationError(
            f"{exc}; write `PRINCIPAL [OPTIONS] KEYTYPE KEY`, as in ssh-keygen(1)", file=file, line=number
        ) from exc


def _limited(key: str, source: str, principals: str, options: list[tuple[str, str]]) -> TrustedKey | None:
    after = before = None
    is_ours = True
    for name, value in options:
        match name.lower():
            case "valid-after":
                after = _time(value)
            case "valid-before":
                before = _time(value)
            case "namespaces":
                is_ours = is_ours and _permits(value)
            case "cert-authority":
                is_ours = False
            case _:
                raise ValueError(f"the option {name!r} is not known")
    return TrustedKey(key, source, principals, after, before) if is_ours else None


def _permits(patterns: str) -> bool:
    """Whether a list of patterns, as in ssh_config(5), matches `NAMESPACE`; one with `!` that matches outweighs all."""
    found = [each.strip() for each in patterns.split(",")]
    if any(each.startswith("!") and fnmatchcase(NAMESPACE, each[1:]) for each in found):
        return False
    return any(fnmatchcase(NAMESPACE, each) for each in found if not each.startswith("!"))


def _time(text: str) -> datetime:
    """Parse a time of ssh-keygen(1): YYYYMMDD[Z] or YYYYMMDDHHMM[SS][Z]; without Z it is local time."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write YYYYMMDDHHMMSSZ")
    day, minute, second, zulu = match.groups()
    moment = datetime.strptime(f"{day}{minute or '0000'}{second or '00'}", "%Y%m%d%H%M%S")  # noqa: DTZ007 -- below
    return moment.replace(tzinfo=UTC) if zulu else moment.astimezone()


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
