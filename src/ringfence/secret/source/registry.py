"""From a reference to the source that it names."""

from collections.abc import Mapping

from ringfence.config.secret_reference import SecretReference
from ringfence.secret.source.base import SecretSource


def open_source(
    name: str, reference: SecretReference, environ: Mapping[str, str], *, lease: str = ""
) -> SecretSource:
    """The source of one secret; nothing is read yet.

    Args:
        name: Of the secret.
        reference: Where it comes from.
        environ: The environment it may come from, and that commands inherit.
        lease: The id that `{lease}` in a command stands for.
    """
    where = f"secret {name!r} ({reference})"
    match reference.kind:
        case "env":
            from ringfence.secret.source.environment import EnvironmentSource

            return EnvironmentSource(reference, environ, where)
        case "file":
            from ringfence.secret.source.file import FileSource

            return FileSource(reference, where)
        case "cmd":
            from ringfence.secret.source.command import CommandSource

            return CommandSource(reference, environ, where, lease=lease)
        case "keyring":
            from ringfence.secret.source.keyring import KeyringSource

            return KeyringSource(reference, environ, where)
        case "age":
            from ringfence.secret.source.age import AgeSource

            return AgeSource(reference, where)
