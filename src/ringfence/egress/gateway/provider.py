"""A provider as the gateway calls it: its API, the credential, and the dummy credential that clients inside hold."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ringfence.frozen import frozen
from ringfence.secret import Credential, CredentialKind, Provider, Redactor

if TYPE_CHECKING:
    from ringfence.egress.gateway.upstream import Upstream

PUBLIC: Mapping[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}
BASE_URL_VARIABLES: Mapping[Provider, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
LOGINS = "https://chatgpt.com/backend-api/codex"
"""The API that accepts a ChatGPT login instead of the platform's. Unverified: no test reaches it."""
DUMMIES: Mapping[tuple[Provider, CredentialKind], tuple[str, str]] = {
    ("anthropic", "api_key"): ("ANTHROPIC_API_KEY", "sk-ant-api03-dummy-the-gate-adds-the-key"),
    ("anthropic", "bearer"): ("ANTHROPIC_AUTH_TOKEN", "dummy-the-gate-adds-the-token"),
    ("anthropic", "oauth"): ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-dummy-the-gate-adds-the-token"),
    ("openai", "api_key"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
    ("openai", "bearer"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
    ("openai", "oauth"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
}
"""The variable inside and its value. A constant is safe, because only the sandbox itself reaches its gateway."""

PORT_INSIDE = 3129
SOCKET_INSIDE = "/tmp/.ringfence/model.sock"  # noqa: S108 -- inside, where /tmp is the sandbox's own


@frozen
class ModelProvider:
    """A provider whose API the gateway may call.

    Args:
        name: The provider.
        credential: The credential, or a function that returns the one that is valid now.
        kind: The kind of the credential.
        upstream: The API: its base URL, or an `Upstream` in this process.
    """

    name: Provider
    credential: Credential | Callable[[], Awaitable[Credential]]
    kind: CredentialKind
    upstream: "str | Upstream"

    async def current_credential(self) -> Credential:
        """The credential that is valid now.

        Raises:
            AuthenticationFailed: No credential is valid.
        """
        return self.credential if isinstance(self.credential, Credential) else await self.credential()


class Redactors:
    """Redactors of the last few credentials, since a token may be renewed while a response still arrives."""

    _MOST = 4

    def __init__(self) -> None:
        self._known: dict[str, Redactor] = {}

    def of(self, credential: Credential) -> Redactor:
        """Return a redactor that finds `credential` and those before it."""
        if credential.value not in self._known:
            values = [*self._known, credential.value][-self._MOST :]
            self._known = {value: Redactor(values) for value in values}
        return self._known[credential.value]


def base_url_of(credential: Credential) -> str:
    """Return the base URL of the API that accepts a credential, determined as the provider's own clients do."""
    usual = (
        LOGINS
        if credential.kind == "oauth" and credential.provider == "openai"
        else PUBLIC[credential.provider]
    )
    return os.environ.get(BASE_URL_VARIABLES[credential.provider]) or usual


def environment_inside(providers: Mapping[Provider, CredentialKind]) -> dict[str, str]:
    """Return the variables that point clients inside to the gateway.

    Args:
        providers: The providers that the gateway calls, and the kind of each one's credential.
    """
    found: dict[str, str] = {}
    for provider, kind in providers.items():
        name, value = DUMMIES[provider, kind]
        base = f"http://127.0.0.1:{PORT_INSIDE}"
        found[BASE_URL_VARIABLES[provider]] = base if provider == "anthropic" else f"{base}/v1"
        found[name] = value
    return found
