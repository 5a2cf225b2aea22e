"""Where a secret is read from: one module for each kind of source."""

from typing import TYPE_CHECKING, Any

from ringfence.secret.source.base import SecretSource

if TYPE_CHECKING:
    from ringfence.secret.source.registry import open_source

__all__ = ["SecretSource", "open_source"]


def __getattr__(name: str) -> Any:
    # References to secrets need pydantic, which renewing a login does without.
    if name == "open_source":
        from ringfence.secret.source.registry import open_source

        return open_source
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
