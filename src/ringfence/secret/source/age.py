"""A secret in a file that is encrypted with age, by the package `pyrage`."""

import importlib.util
from pathlib import Path
from typing import Any

import anyio.to_thread

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.source.file import read_secret_file
from ringfence.secret.value import LIMIT_BYTES, SecretValue, read_value


class AgeSource:
    """An encrypted file, and the file with what opens it. Others may read the one, but should not the other.

    Args:
        reference: Names both.
        where: For errors.
    """

    def __init__(self, reference: SecretReference, where: str) -> None:
        assert reference.path is not None
        assert reference.identity is not None
        self._path, self._identity = reference.path, reference.identity.expanduser()
        self._where = where

    async def read(self) -> SecretValue:
        """See `SecretSource.read`."""
        if importlib.util.find_spec("pyrage") is None:
            raise AuthenticationFailed(
                f"{self._where} needs the package pyrage; install it: pip install 'ringfence[age]'"
            )
        return await anyio.to_thread.run_sync(self._decrypt)

    def _decrypt(self) -> SecretValue:
        import pyrage

        sealed, _ = read_secret_file(self._path, self._where)
        if len(sealed) > LIMIT_BYTES:
            raise AuthenticationFailed(
                f"{self._where} is larger than {LIMIT_BYTES} bytes; put one secret in it"
            )
        raw, warnings = read_secret_file(self._identity, self._where)
        identities = _identities(raw, self._identity, self._where)
        try:
            value = read_value(pyrage.decrypt(sealed, identities), self._where)
        except pyrage.DecryptError as exc:
            raise AuthenticationFailed(
                f"{self._where} cannot be opened with {str(self._identity)!r}: {exc}; name the identity it is for"
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
