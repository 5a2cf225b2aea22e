"""What proves to the Messages API who asks. Where it comes from is decided elsewhere."""

from dataclasses import dataclass, field
from typing import Literal

from ringfence.errors import AuthenticationFailed

CredentialKind = Literal["api_key", "bearer", "oauth"]
"""`api_key`: a key of the Console. `bearer`: a gateway's token. `oauth`: a Claude subscription's token."""

_OAUTH_BETA = "oauth-2025-04-20"
"""The header value with which the Claude Code CLI 2.1 sends its OAuth tokens."""


_LEAST_SECRET = 8
"""Shorter ones are dummies of local servers; taking them out would only garble the text."""


@dataclass(frozen=True)
class Credential:
    """A secret and how it is sent. Its text never shows the secret.

    Raises:
        AuthenticationFailed: The secret is empty or holds what no header can carry.
    """

    kind: CredentialKind
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if (
            not self.secret
            or not self.secret.isascii()
            or not self.secret.isprintable()
            or " " in self.secret
        ):
            raise AuthenticationFailed(
                f"the {self.kind} credential is empty or holds spaces, control or non-ASCII characters; "
                "copy it again, without quotes and line ends"
            )

    def headers(self) -> dict[str, str]:
        """The request headers that carry it."""
        if self.kind == "api_key":
            # The SDK 2.x sends keys as a bearer token; the API takes both, but gateways and local servers
            # written for earlier clients (and for the claude CLI) look at this header only.
            return {"X-Api-Key": self.secret}
        headers = {"Authorization": f"Bearer {self.secret}"}
        return headers | {"anthropic-beta": _OAUTH_BETA} if self.kind == "oauth" else headers

    def redact(self, text: str) -> str:
        """`text` without the secret: a server may echo it in an error."""
        return text.replace(self.secret, "[credential]") if len(self.secret) >= _LEAST_SECRET else text
