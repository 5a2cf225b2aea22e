"""Credentials and other secrets: their sources, their leases, and their redaction from records."""

from ringfence.secret.credential import (
    VARIABLES,
    Credential,
    CredentialKind,
    KnownSecret,
    Provider,
    credential_of,
    credentials_of,
    known_secrets,
)
from ringfence.secret.lease import (
    Lease,
    lease_secret,
    lease_secrets,
    read_cheaply,
    revoke_abandoned,
)
from ringfence.secret.lease_file import active_leases
from ringfence.secret.redact import (
    Redactor,
    StreamRedactor,
    environment_secrets,
    looks_secret,
    redact_shapes,
    register_secrets,
    registered_secrets,
)

__all__ = [
    "VARIABLES",
    "Credential",
    "CredentialKind",
    "KnownSecret",
    "Lease",
    "Provider",
    "Redactor",
    "StreamRedactor",
    "active_leases",
    "credential_of",
    "credentials_of",
    "environment_secrets",
    "known_secrets",
    "lease_secret",
    "lease_secrets",
    "looks_secret",
    "read_cheaply",
    "redact_shapes",
    "register_secrets",
    "registered_secrets",
    "revoke_abandoned",
]
