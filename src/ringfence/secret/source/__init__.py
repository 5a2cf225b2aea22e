"""Where a secret is read from: one module for each kind of source."""

from ringfence.secret.source.base import SecretSource
from ringfence.secret.source.registry import open_source

__all__ = ["SecretSource", "open_source"]
