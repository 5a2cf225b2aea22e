"""Where credentials come from, and how secrets are kept out of what is recorded."""

from typing import TYPE_CHECKING, Any

from ringfence.secret.credentials import (
    Credential,
    CredentialKind,
    Provider,
    environment_secrets,
    looks_secret,
)
from ringfence.secret.redact import Redactor, remembered

if TYPE_CHECKING:
    from ringfence.secret.known import KnownSecret, credential_of, credentials_of, known_secrets
    from ringfence.secret.lease import Lease, glance, leased

__all__ = [
    "Credential",
    "CredentialKind",
    "KnownSecret",
    "Lease",
    "Provider",
    "Redactor",
    "credential_of",
    "credentials_of",
    "environment_secrets",
    "glance",
    "known_secrets",
    "leased",
    "looks_secret",
    "remembered",
]

_HOMES = {
    "KnownSecret": "known",
    "credential_of": "known",
    "credentials_of": "known",
    "known_secrets": "known",
    "Lease": "lease",
    "glance": "lease",
    "leased": "lease",
}


def __getattr__(name: str) -> Any:
    # References to secrets need pydantic, which what only redacts does without.
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
