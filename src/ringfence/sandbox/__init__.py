"""Sandboxes: the backend contract, specs, policy, the guest and its protocol, and the backends."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.sandbox.base import Facts, Placement, Usage
    from ringfence.sandbox.blocking_sandbox import BlockingProcess, BlockingSandbox, open_sandbox
    from ringfence.sandbox.protocol.command import ProcessEnd, SandboxProcess
    from ringfence.sandbox.protocol.connection import Connection
    from ringfence.sandbox.protocol.files import DirEntry
    from ringfence.sandbox.result import EndedBy, ExecResult
    from ringfence.sandbox.sandbox import Sandbox
    from ringfence.sandbox.spec import Mount, SandboxSpec
    from ringfence.sandbox.workspace.run import Changes

__all__ = [
    "BlockingProcess",
    "BlockingSandbox",
    "Changes",
    "Connection",
    "DirEntry",
    "EndedBy",
    "ExecResult",
    "Facts",
    "Mount",
    "Placement",
    "ProcessEnd",
    "Sandbox",
    "SandboxProcess",
    "SandboxSpec",
    "Usage",
    "open_sandbox",
]
_MODULES = {
    "base": ("Facts", "Placement", "Usage"),
    "blocking_sandbox": ("BlockingProcess", "BlockingSandbox", "open_sandbox"),
    "protocol.command": ("ProcessEnd", "SandboxProcess"),
    "protocol.connection": ("Connection",),
    "protocol.files": ("DirEntry",),
    "result": ("EndedBy", "ExecResult"),
    "sandbox": ("Sandbox",),
    "spec": ("Mount", "SandboxSpec"),
    "workspace.run": ("Changes",),
}


def __getattr__(name: str) -> Any:
    """Public names, imported on first use: a command in a standing sandbox needs few of them."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"ringfence.sandbox.{module}"), name)
    raise AttributeError(f"module 'ringfence.sandbox' has no attribute {name!r}")
