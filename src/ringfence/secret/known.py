"""Which secrets there are, by name: those of the configuration, and credentials that the environment holds anyway."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ringfence.config.secret_reference import SecretReference
from ringfence.errors import AuthenticationFailed
from ringfence.frozen import frozen
from ringfence.secret.credentials import CODEX_LOGIN, VARIABLES, Provider

_ELSE = (
    "each also as NAME_FILE=PATH or under `secrets:` in your configuration; `ringfence run --model scripted:FILE` "
    "needs none"
)
_WAYS = {
    "anthropic": (
        "there is no credential for the model; set ANTHROPIC_API_KEY (a key of the Console), or "
        "ANTHROPIC_AUTH_TOKEN (a token of a gateway), or CLAUDE_CODE_OAUTH_TOKEN (made by `claude setup-token`), "
        f"{_ELSE}"
    ),
    "openai": (
        "there is no credential for OpenAI's models; set OPENAI_API_KEY (a key of the platform), or "
        "CODEX_API_KEY, or log in by `codex login` (read from CODEX_AUTH_FILE, else auth.json in CODEX_HOME, else "
        f"in ~/.codex), {_ELSE}"
    ),
}


@frozen
class KnownSecret:
    """A secret that can be had by name. The value is not known yet."""

    name: str
    reference: SecretReference
    is_configured: bool
    """Whether the configuration names it, as against a variable or file that is there for other programs, too."""

    @property
    def provider(self) -> Provider | None:
        """Whose credential it is; None: nobody's model's."""
        return VARIABLES[self.name][0] if self.name in VARIABLES else None

    @property
    def is_cheap(self) -> bool:
        """Whether it can be looked at without running a program or asking anybody."""
        return self.reference.kind in ("env", "file")


def known_secrets(
    references: Mapping[str, SecretReference], environ: Mapping[str, str] | None = None
) -> dict[str, KnownSecret]:
    """All secrets by name; those of the configuration first, then credentials of the environment.

    Args:
        references: `secrets` of the configuration.
        environ: Instead of `os.environ`.

    Raises:
        AuthenticationFailed: A credential is said twice by the environment.
    """
    environ = os.environ if environ is None else environ
    configured = {name: KnownSecret(name, reference, True) for name, reference in references.items()}
    found = {
        name: KnownSecret(name, reference, False)
        for name, reference in _of_the_environment(environ)
        if name not in configured
    }
    return configured | found


def credentials_of(provider: Provider, known: Mapping[str, KnownSecret]) -> list[KnownSecret]:
    """The credentials of a provider, the one to use first: what is configured, then the order of `VARIABLES`."""
    order = list(VARIABLES)
    mine = [secret for secret in known.values() if secret.provider == provider]
    return sorted(mine, key=lambda secret: (not secret.is_configured, order.index(secret.name)))


def credential_of(provider: Provider, known: Mapping[str, KnownSecret]) -> KnownSecret:
    """The credential of a provider.

    Raises:
        AuthenticationFailed: There is none; the text names the ways to give one.
    """
    found = credentials_of(provider, known)
    if not found:
        raise AuthenticationFailed(_WAYS[provider])
    return found[0]


def _of_the_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, SecretReference]]:
    for name in VARIABLES:
        value, file = environ.get(name, "").strip(), environ.get(f"{name}_FILE", "")
        if value and file:
            raise AuthenticationFailed(f"both {name} and {name}_FILE are set; unset one of them")
        if file:
            yield name, SecretReference(file=Path(file).absolute())
        elif value and name != CODEX_LOGIN:
            yield name, SecretReference(env=name)
        elif value:
            raise AuthenticationFailed(
                f"{name} holds a value, but a login is renewed in its file; set {name}_FILE"
            )
        elif name == CODEX_LOGIN:
            usual = Path(environ.get("CODEX_HOME") or "~/.codex").expanduser() / "auth.json"
            if usual.is_absolute() and usual.is_file():
                yield name, SecretReference(file=usual)
