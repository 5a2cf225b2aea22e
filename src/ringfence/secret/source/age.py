"""A secret in a file that is encrypted with age, by the package `pyrage`."""

import importlib.util
from pathlib import Path
from typing import Any

import anyio.to_thread

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.source.file import read_secret_file
from ringfence.secret.value import LIMIT_BYTES, SecretValue, read_value


async def read_age(reference: SecretReference, where: str) -> SecretValue:
    """Read an encrypted file with another that opens it; others should not be able to read that one.

    Raises as `read_source`.
    """
    if importlib.util.find_spec("pyrage") is None:
        raise AuthenticationFailed(
            f"{where} needs the package pyrage; install it: pip install 'ringfence[age]'"
        )
    assert reference.path is not None
    assert reference.identity is not None
    return await anyio.to_thread.run_sync(_decrypt, reference.path, reference.identity.expanduser(), where)


def _decrypt(path: Path, identity: Path, where: str) -> SecretValue:
    import pyrage

    sealed, _ = read_secret_file(path, where)
    if len(sealed) > LIMIT_BYTES:
        raise AuthenticationFailed(f"{where} is larger than {LIMIT_BYTES} bytes; put one secret in it")
    raw, warnings = read_secret_file(identity, where)
    identities = _identities(raw, identity, where)
    try:
        value = read_value(pyrage.decrypt(sealed, identities), where)
    except pyrage.DecryptError as exc:
        raise AuthenticationFailed(
            f"{where} cannot be opened with {str(identity)!r}: {exc}; name the identity it is for"
        ) from exc
    return SecretValue(value.text, value.expires_at, value.beside, warnings=warnings)


def _identities(raw: bytes, file: Path, where: str) -> list[Any]:
    import pyrage

    try:
        if raw.startswith(b"-----BEGIN"):
            return [pyrage.ssh.Identity.from_buffer(raw)]
        lines = [line.strip() for line in raw.decode("ascii").splitlines()]
        found = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (pyrage.IdentityError, UnicodeDecodeError):
        found = []
    if not found:
        # Not `from`: the library's own error may quote the line.
        raise AuthenticationFailed(
            f"{where}: {str(file)!r} holds no age identity and no unencrypted SSH key; make one with age-keygen"
        ) from None
    return found
