"""Configuration: its layers, its files, their units, and the locations of state on disk."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.config.document import Origin
    from ringfence.config.effective import Effective, Flag, load
    from ringfence.config.model import Settings

__all__ = ["Effective", "Flag", "Origin", "Settings", "load"]

_MODULES = {
    "Effective": "effective",
    "Flag": "effective",
    "load": "effective",
    "Settings": "model",
    "Origin": "document",
}


def __getattr__(name: str) -> Any:
    # Importing pydantic and ruamel.yaml takes 0.2 s, which `ringfence --help` does not need to spend.
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
