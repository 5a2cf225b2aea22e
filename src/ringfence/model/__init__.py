"""Who thinks: the contract of a model, Claude through the Messages API, and a scripted stand-in.

Importing this imports none of them; each name is fetched when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.model.anthropic import AnthropicModel
    from ringfence.model.base import ContextExceeded, Emit, Model, ModelReply, ModelRequest
    from ringfence.model.patience import Patience
    from ringfence.model.prices import Price, cost, price_of, require_price
    from ringfence.model.registry import needs_credential

SDK_MODULES = ("anthropic", "anthropic.resources.messages")
"""What a first request needs of the official SDK, which itself puts the second off until then."""

__all__ = [
    "SDK_MODULES",
    "AnthropicModel",
    "ContextExceeded",
    "Emit",
    "Model",
    "ModelReply",
    "ModelRequest",
    "Patience",
    "Price",
    "cost",
    "needs_credential",
    "price_of",
    "require_price",
]

_HOMES = {
    "AnthropicModel": "anthropic",
    "ContextExceeded": "base",
    "Emit": "base",
    "Model": "base",
    "ModelReply": "base",
    "ModelRequest": "base",
    "Patience": "patience",
    "Price": "prices",
    "cost": "prices",
    "price_of": "prices",
    "require_price": "prices",
    "needs_credential": "registry",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
