"""Where credentials come from, and how secrets are kept out of what is recorded."""

from ringfence.secret.credentials import (
    Credential,
    CredentialKind,
    Provider,
    environment_secrets,
    looks_secret,
)
from ringfence.secret.known import KnownSecret, credential_of, credentials_of, known_secrets
from ringfence.secret.lease import Lease, glance, leased
from ringfence.secret.redact import Redactor, remembered

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
