"""Where secrets come from: a module for each kind of source. No error shows a secret, whole or in part."""

from collections.abc import Mapping

from ringfence.config.secret_reference import SecretReference
from ringfence.secret.source.age import read_age
from ringfence.secret.source.command import read_command
from ringfence.secret.source.environment import read_environment
from ringfence.secret.source.file import read_file
from ringfence.secret.source.keyring import read_keyring
from ringfence.secret.value import SecretValue

__all__ = ["read_source"]


async def read_source(
    name: str, reference: SecretReference, environ: Mapping[str, str], *, lease: str = ""
) -> SecretValue:
    """Read a secret as it is now.

    Args:
        name: Of the secret.
        reference: Where it comes from.
        environ: The environment it may come from, and that commands inherit.
        lease: The id that `{lease}` in a command stands for.

    Raises:
        AuthenticationFailed: It cannot be had; the text names the secret, its source and what to do.
        InfrastructureFault: What gives it cannot be reached or started; another time it may.
    """
    where = f"secret {name!r} ({reference})"
    match reference.kind:
        case "env":
            return read_environment(reference, environ, where)
        case "file":
            return await read_file(reference, where)
        case "cmd":
            return await read_command(reference, environ, where, lease=lease)
        case "keyring":
            return await read_keyring(reference, environ, where)
        case "age":
            return await read_age(reference, where)
