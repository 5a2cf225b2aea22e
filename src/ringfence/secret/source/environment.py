"""A secret in a variable of the environment."""

from collections.abc import Mapping

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.value import SecretValue, read_value


class EnvironmentSource:
    """A variable, as it was when ringfence started.

    Args:
        reference: Names the variable.
        environ: The environment.
        where: For errors.
    """

    def __init__(self, reference: SecretReference, environ: Mapping[str, str], where: str) -> None:
        self._name = reference.env or ""
        self._environ = environ
        self._where = where

    async def read(self) -> SecretValue:
        """See `SecretSource.read`."""
        value = self._environ.get(self._name, "")
        if not value.strip():
            raise AuthenticationFailed(
                f"{self._where} is not set; export {self._name}, or name another source"
            )
        return read_value(value.encode("utf-8", "surrogateescape"), self._where)
