"""Replaces `${secret:NAME}` in a text by the secret's value, at the moment of use."""

import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.secret import known_secrets, lease_secret

_REFERENCE = re.compile(r"\$\{secret:([A-Za-z_][A-Za-z0-9_-]{0,63})\}")


def names_in(text: str) -> list[str]:
    """Return the names of the secrets that a text contains, each once."""
    return list(dict.fromkeys(_REFERENCE.findall(text)))


async def with_secrets(
    text: str, *, stack: AsyncExitStack, references: Mapping[str, SecretReference], state: Path
) -> str:
    """Return the text with the values of its secrets, which are leased for as long as the stack is open.

    Raises:
        AuthenticationFailed: A secret is not known, or cannot be obtained.
        InfrastructureFault: A secret's source cannot be reached.
    """
    names = names_in(text)
    if not names:
        return text
    known = known_secrets(references)
    values: dict[str, str] = {}
    for name in names:
        if name not in known:
            raise AuthenticationFailed(
                f"secret {name!r} is not defined; add it under `secrets:` as `{name}: env:NAME` or file:/PATH"
            )
        lease = await stack.enter_async_context(lease_secret(known[name], state=state, run="hook"))
        values[name] = (await lease.current()).text
    return _REFERENCE.sub(lambda match: values[match[1]], text)
