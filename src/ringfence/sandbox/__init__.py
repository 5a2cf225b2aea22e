"""The fence: contract, spec, policy, the guest and its protocol, backends."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.sandbox.base import Facts, Placement, Usage
    from ringfence.sandbox.blocking import BlockingProcess, BlockingSandbox, open_sandbox
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
    "BlockingProcess": "blocking",
    "BlockingSandbox": "blocking",
    "Changes": "workspace.sandbox",
    "Connection": "protocol.connection",
    "DirEntry": "protocol.files",
    "EndedBy": "result",
    "ExecResult": "result",
    "Facts": "base",
    "Mount": "spec",
    "Placement": "base",
    "ProcessEnd": "protocol.command",
    "Usage": "base",
    "Sandbox": "sandbox",
    "SandboxProcess": "protocol.command",
    "SandboxSpec": "spec",
    "open_sandbox": "blocking",
}


def __getattr__(name: str) -> Any:
    """Public names, imported on first use: a command in a standing sandbox needs few of them."""
    if name in _MODULES:
        return getattr(import_module(f"ringfence.sandbox.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'ringfence.sandbox' has no attribute {name!r}")
