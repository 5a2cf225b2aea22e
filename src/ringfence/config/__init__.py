"""Configuration: layers, files, units, and where things live on disk."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.config.document import Origin
    from ringfence.config.layers import Effective, Flag, load
    from ringfence.config.model import Settings

__all__ = ["Effective", "Flag", "Origin", "Settings", "load"]

_HOMES = {
    "Effective": "layers",
    "Flag": "layers",
    "load": "layers",
    "Settings": "model",
    "Origin": "document",
}


def __getattr__(name: str) -> Any:
    # pydantic and ruamel.yaml take 0.2 s to import, which `ringfence --help` does not have.
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
