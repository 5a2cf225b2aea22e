"""Ringfence runs AI coding agents where they can do no harm, and keeps a record that proves what they did."""

TYPE_CHECKING = False  # to import `typing` takes half as long as to start Python
if TYPE_CHECKING:
    from typing import Any

    from ringfence.sandbox import ExecResult, Sandbox, SandboxSpec

__version__ = "0.1.0"
__all__ = ["ExecResult", "Sandbox", "SandboxSpec", "__version__"]


def __getattr__(name: str) -> "Any":
    """Public names, imported on first use: `ringfence --help` must not pay for them."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("ringfence.sandbox"), name)
    raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
