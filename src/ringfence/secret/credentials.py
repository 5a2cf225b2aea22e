"""Where the model's credential comes from, and which values of the environment are secrets.

A credential is read on the host and stays there; nothing here puts it into a sandbox, an argument or a text.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Literal
from urllib.parse import unquote, urlsplit

from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen

Provider = Literal["anthropic", "openai"]
"""Whose API takes it: the Messages API, or the Responses and Chat APIs."""

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
"""Variables that hold a credential, in the order in which they are asked; NAME_FILE names a file with it."""

CODEX_LOGIN = "CODEX_AUTH"
"""The one that is not a value but a login: Codex's `auth.json`, which is renewed where it lies."""

_SECRET_WORDS = frozenset(
    [
        "KEY",
        "KEYS",
        "TOKENS",
        "SECRETS",
        "PASS",
        "PWD",
        "PASSWORDS",
        "CREDENTIAL",
        "CREDENTIALS",
        "PAT",
        "COOKIE",
    ]
)
_SECRET_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE")
_HARMLESS_ENDINGS = ("_FILE", "_PATH", "_DIR", "_SOCK", "_PID", "_TYPE", "_FILE_DESCRIPTOR")
_HARMLESS_NAMES = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})


_OAUTH_BETA = "oauth-2025-04-20"
"""The header value with which the Claude Code CLI 2.1 sends its OAuth tokens."""

_LEAST_SECRET = 8
"""Shorter ones are dummies of local servers; taking them out would only garble the text."""


@frozen
class Credential:
    """What proves to the model's API who asks: one moment's, as a subscription's token ends and is replaced.

    Its text never shows the value.

    Raises:
        AuthenticationFailed: The value is empty or holds what no header can carry.
    """

    kind: CredentialKind
    value: str = field(repr=False)
    source: str = ""
    """Where it came from: a variable, or a secret of the configuration and its source."""
    provider: Provider = "anthropic"
    account_id: str = ""
    """Of a ChatGPT login, whose requests name the account; else empty."""
    expires_at: datetime | None = None
    """When it ends, in UTC; None: not known."""

    def __post_init__(self) -> None:
        # A line end in a header would let the value forge further headers.
        if not (self.value and _fits_a_header(self.value) and _fits_a_header(self.account_id)):
            raise AuthenticationFailed(
                f"the {self.kind} credential{' from ' + self.source if self.source else ''} is empty or holds "
                "spaces, control or non-ASCII characters; copy it again, without quotes and line ends"
            )

    def headers(self) -> dict[str, str]:
        """The request headers that carry it; what a client sent under the same names must go."""
        if self.provider == "openai":
            account = {"chatgpt-account-id": self.account_id} if self.account_id else {}
            return {"Authorization": f"Bearer {self.value}"} | account
        if self.kind == "api_key":
            # The SDK 2.x sends keys as a bearer token; the API takes both, but gateways and local servers
            # written for earlier clients (and for the claude CLI) look at this header only.
            return {"X-Api-Key": self.value}
        headers = {"Authorization": f"Bearer {self.value}"}
        return headers | {"anthropic-beta": _OAUTH_BETA} if self.kind == "oauth" else headers

    def redact(self, text: str) -> str:
        """`text` without the value: a server may echo it in an error."""
        return text.replace(self.value, "[credential]") if len(self.value) >= _LEAST_SECRET else text


def environment_secrets(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Values of the environment that look secret by their name, or are passwords in a URL; for redaction.

    Args:
        environ: Instead of `os.environ`.
    """
    environ = os.environ if environ is None else environ
    found = {value for name, value in environ.items() if looks_secret(name)}
    for name, value in environ.items():
        # Of proxies, addresses are also written without a scheme.
        is_bare = name.upper().endswith("_PROXY") and "://" not in value
        found |= _url_passwords(f"http://{value}" if is_bare else value)
    return tuple(sorted(found - {""}))


def looks_secret(name: str) -> bool:
    """Whether a variable of this name usually holds a secret."""
    upper = name.upper()
    if upper in _HARMLESS_NAMES or upper.endswith(_HARMLESS_ENDINGS):
        return False
    return upper.endswith(_SECRET_ENDINGS) or not _SECRET_WORDS.isdisjoint(re.split(r"[^A-Z0-9]+", upper))


def _fits_a_header(text: str) -> bool:
    return text.isascii() and (not text or text.isprintable()) and " " not in text


def _url_passwords(value: str) -> set[str]:
    if "://" not in value or "@" not in value:
        return set()
    try:
        password = urlsplit(value).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()
