"""Model providers: base URLs, the credentials of the gateway, and the dummy credentials of clients inside."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ringfence.frozen import frozen
from ringfence.secret import Credential, CredentialKind, Provider, Redactor

if TYPE_CHECKING:
    from ringfence.egress.gateway.upstream import Upstream

PUBLIC_BASE_URLS: Mapping[Provider, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com/v1",
}
BASE_URL_VARIABLES: Mapping[Provider, str] = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
}
CHATGPT_BASE_URL = "https://chatgpt.com/backend-api/codex"
"""The API for ChatGPT logins, which the public API does not accept. Unverified: no test reaches it."""
DUMMY_CREDENTIALS: Mapping[tuple[Provider, CredentialKind], tuple[str, str]] = {
    ("anthropic", "api_key"): ("ANTHROPIC_API_KEY", "sk-ant-api03-dummy-the-gate-adds-the-key"),
    ("anthropic", "bearer"): ("ANTHROPIC_AUTH_TOKEN", "dummy-the-gate-adds-the-token"),
    ("anthropic", "oauth"): ("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-dummy-the-gate-adds-the-token"),
    ("openai", "api_key"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
    ("openai", "bearer"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
    ("openai", "oauth"): ("OPENAI_API_KEY", "sk-dummy-the-gate-adds-the-key"),
}
"""For each credential of the gateway, the variable that clients inside read and its dummy value.

A constant value is safe, because only processes in the sandbox reach its gateway.
"""

PORT_INSIDE = 3129
SOCKET_INSIDE = "/tmp/.ringfence/model.sock"  # noqa: S108 -- inside, where /tmp is the sandbox's own


@frozen
class ModelProvider:
    """A provider whose API the gateway may call.

    Args:
        name: The provider.
        credential: The credential, or a function that returns the one that is valid now.
        kind: The kind of the credential.
        upstream: The base URL of the API, or an `Upstream` in this process.
    """

    name: Provider
    credential: Credential | Callable[[], Awaitable[Credential]]
    kind: CredentialKind
    upstream: "str | Upstream"

    async def current_credential(self) -> Credential:
        """Return the credential that is valid now.

        Raises:
            AuthenticationFailed: No credential is valid.
        """
        return self.credential if isinstance(self.credential, Credential) else await self.credential()


class Redactors:
    """Redactors for the last few credentials, because a token may be renewed while a response is received."""

    _MAX_CREDENTIALS = 4

    def __init__(self) -> None:
        self._known: dict[str, Redactor] = {}

    def of(self, credential: Credential) -> Redactor:
        """Return a redactor that finds `credential` and the ones before it."""
        if credential.value not in self._known:
            values = [*self._known, credential.value][-self._MAX_CREDENTIALS :]
            self._known = {value: Redactor(values) for value in values}
        return self._known[credential.value]


def base_url_of(credential: Credential) -> str:
    """Return the base URL for a credential: the one that the environment sets, or the provider's public one."""
    default = (
        CHATGPT_BASE_URL
        if credential.kind == "oauth" and credential.provider == "openai"
        else PUBLIC_BASE_URLS[credential.provider]
    )
    return os.environ.get(BASE_URL_VARIABLES[credential.provider]) or default


def environment_inside(providers: Mapping[Provider, CredentialKind]) -> dict[str, str]:
    """Return the environment variables that direct clients inside to the gateway.

    Args:
        providers: The providers that the gateway calls, with the kinds of their credentials.
    """
    variables: dict[str, str] = {}
    for provider, kind in providers.items():
        name, value = DUMMY_CREDENTIALS[provider, kind]
        base = f"http://127.0.0.1:{PORT_INSIDE}"
        variables[BASE_URL_VARIABLES[provider]] = base if provider == "anthropic" else f"{base}/v1"
        variables[name] = value
    return variables
