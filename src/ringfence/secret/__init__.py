"""Where credentials come from, and how secrets are kept out of what is recorded."""

from ringfence.secret.credentials import (
    Credential,
    CredentialKind,
    Provider,
    environment_secrets,
    looks_secret,
    resolve_credential,
)
from ringfence.secret.redact import Redactor

__all__ = [
    "Credential",
    "CredentialKind",
    "Provider",
    "Redactor",
    "environment_secrets",
    "looks_secret",
    "resolve_credential",
]
