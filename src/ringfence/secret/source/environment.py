"""A secret in a variable of the environment."""

from collections.abc import Mapping

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret.value import SecretValue, read_value


def read_environment(reference: SecretReference, environ: Mapping[str, str], where: str) -> SecretValue:
    """Read a variable. Raises as `read_source`."""
    value = environ.get(reference.env or "", "")
    if not value.strip():
        raise AuthenticationFailed(f"{where} is not set; export {reference.env}, or name another source")
    return read_value(value.encode("utf-8", "surrogateescape"), where)
