"""Model credentials: their kinds, where the configuration and the environment provide them, and their headers.

A credential is read on the host and stays there: this module never puts one into a sandbox, an argument or a message.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Literal

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen

Provider = Literal["anthropic", "openai"]
"""The company whose API accepts a credential: the Messages API, or the Responses and Chat APIs."""

CredentialKind = Literal["api_key", "bearer", "oauth"]
"""`api_key`: a key of the provider's console. `bearer`: a gateway's token. `oauth`: a subscription's token."""

VARIABLES: Mapping[str, tuple[Provider, CredentialKind]] = {
    "ANTHROPIC_API_KEY": ("anthropic", "api_key"),
    "ANTHROPIC_AUTH_TOKEN": ("anthropic", "bearer"),
    "CLAUDE_CODE_OAUTH_TOKEN": ("anthropic", "oauth"),
    "OPENAI_API_KEY": ("openai", "api_key"),
    "CODEX_API_KEY": ("openai", "api_key"),
    "CODEX_AUTH": ("openai", "oauth"),
}
"""Variables that hold a credential, in order of preference. NAME_FILE names a file that contains it instead."""

CODEX_LOGIN = "CODEX_AUTH"
"""The variable for a login instead of a value; it is read from Codex's `auth.json`."""

_OAUTH_BETA = "oauth-2025-04-20"
"""The header value with which the Claude Code CLI 2.1 sends its OAuth tokens."""

_SHORTEST_REDACTED = 8
"""Shorter values are placeholders for local servers, and redacting them would only garble the text."""

_OTHER_WAYS = "each also as NAME_FILE=PATH or under `secrets:` in your configuration; `--model scripted:FILE` needs none"
_WAYS = {
    "anthropic": (
        "there is no credential for the model; set ANTHROPIC_API_KEY (a key of the Console), or "
        "ANTHROPIC_AUTH_TOKEN (a token of a gateway), or CLAUDE_CODE_OAUTH_TOKEN (made by `claude setup-token`), "
        f"{_OTHER_WAYS}"
    ),
    "openai": (
        "there is no credential for OpenAI's models; set OPENAI_API_KEY (a key of the platform), or "
        "CODEX_API_KEY, or log in by `codex login` (read from CODEX_AUTH_FILE, else auth.json in CODEX_HOME, else "
        f"in ~/.codex), {_OTHER_WAYS}"
    ),
}


@frozen
class Credential:
    """The value that authenticates a request to a model's API now; a subscription's token expires and is replaced.

    Its repr never shows the value.

    Raises:
        AuthenticationFailed: The value is empty or contains characters that a header cannot carry.
    """

    kind: CredentialKind
    value: str = field(repr=False)
    source: str = ""
    """The source of the value: a variable, or a secret of the configuration and its source."""
    provider: Provider = "anthropic"
    account_id: str = ""
    """The account id that requests with a ChatGPT login must send; empty for other credentials."""
    expires_at: datetime | None = None
    """The time of expiry in UTC; None if it is not known."""

    def __post_init__(self) -> None:
        # A line end in a header would let the value forge further headers.
        if not (self.value and _fits_a_header(self.value) and _fits_a_header(self.account_id)):
            raise AuthenticationFailed(
                f"the {self.kind} credential{' from ' + self.source if self.source else ''} is empty or holds "
                "spaces, control or non-ASCII characters; copy it again, without quotes and line ends"
            )

    def headers(self) -> dict[str, str]:
        """Return the request headers that carry it; the caller must remove headers of these names that a client sent."""
        if self.provider == "openai":
            account = {"chatgpt-account-id": self.account_id} if self.account_id else {}
            return {"Authorization": f"Bearer {self.value}"} | account
        if self.kind == "api_key":
            # The SDK 2.x sends keys as a bearer token; the API accepts both, but gateways and local servers
            # written for earlier clients (and for the claude CLI) read this header only.
            return {"X-Api-Key": self.value}
        headers = {"Authorization": f"Bearer {self.value}"}
        return headers | {"anthropic-beta": _OAUTH_BETA} if self.kind == "oauth" else headers

    def redact(self, text: str) -> str:
        """Return `text` without the value, since a server may echo it in an error."""
        return text.replace(self.value, "[credential]") if len(self.value) >= _SHORTEST_REDACTED else text


@frozen
class KnownSecret:
    """A secret that is available by name. Its value has not been read."""

    name: str
    reference: SecretReference
    is_configured: bool
    """Whether the configuration names it; otherwise it is a variable or file that other programs use, too."""

    @property
    def provider(self) -> Provider | None:
        """The provider whose credential it is; None if it is not a model credential."""
        return VARIABLES[self.name][0] if self.name in VARIABLES else None

    @property
    def is_cheap(self) -> bool:
        """Whether it can be read without starting a program or asking the user."""
        return self.reference.kind in ("env", "file")

    @property
    def where(self) -> str:
        """Its name and source, for error messages."""
        return f"secret {self.name!r} ({self.reference})"


def known_secrets(
    references: Mapping[str, SecretReference], environ: Mapping[str, str] | None = None
) -> dict[str, KnownSecret]:
    """Return all secrets by name: those of the configuration first, then the credentials of the environment.

    Args:
        references: `secrets` of the configuration.
        environ: Used instead of `os.environ`.

    Raises:
        AuthenticationFailed: The environment names a credential twice.
    """
    environ = os.environ if environ is None else environ
    configured = {name: KnownSecret(name, reference, True) for name, reference in references.items()}
    inherited = {
        name: KnownSecret(name, reference, False)
        for name, reference in _environment_references(environ)
        if name not in configured
    }
    return configured | inherited


def credentials_of(provider: Provider, known: Mapping[str, KnownSecret]) -> list[KnownSecret]:
    """Return the credentials of a provider: configured ones first, each group in the order of `VARIABLES`."""
    order = list(VARIABLES)
    found = [secret for secret in known.values() if secret.provider == provider]
    return sorted(found, key=lambda secret: (not secret.is_configured, order.index(secret.name)))


def credential_of(provider: Provider, known: Mapping[str, KnownSecret]) -> KnownSecret:
    """Return the preferred credential of a provider.

    Raises:
        AuthenticationFailed: There is none; the text names the ways to provide one.
    """
    found = credentials_of(provider, known)
    if not found:
        raise AuthenticationFailed(_WAYS[provider])
    return found[0]


def _environment_references(environ: Mapping[str, str]) -> Iterator[tuple[str, SecretReference]]:
    for name in VARIABLES:
        value, file = environ.get(name, "").strip(), environ.get(f"{name}_FILE", "")
        if value and file:
            raise AuthenticationFailed(f"both {name} and {name}_FILE are set; unset one of them")
        if file:
            yield name, SecretReference(file=Path(file).absolute())
        elif value and name != CODEX_LOGIN:
            yield name, SecretReference(env=name)
        elif value:
            raise AuthenticationFailed(f"{name} holds a value, but a login is a file; set {name}_FILE")
        elif name == CODEX_LOGIN:
            usual = Path(environ.get("CODEX_HOME") or "~/.codex").expanduser() / "auth.json"
            if usual.is_absolute() and usual.is_file():
                yield name, SecretReference(file=usual)


def _fits_a_header(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and " " not in text
