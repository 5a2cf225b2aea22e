"""The fence: contract, spec, policy, the guest and its protocol, backends."""

from ringfence.sandbox.base import Facts, Placement, ResourceUse
from ringfence.sandbox.channels.connection import Connection
from ringfence.sandbox.files import DirEntry
from ringfence.sandbox.process import ProcessEnd, SandboxProcess
from ringfence.sandbox.result import EndedBy, ExecResult
from ringfence.sandbox.sandbox import Sandbox
from ringfence.sandbox.spec import Mount, SandboxSpec

__all__ = [
    "Connection",
    "DirEntry",
    "EndedBy",
    "ExecResult",
    "Facts",
    "Mount",
    "Placement",
    "ProcessEnd",
    "ResourceUse",
    "Sandbox",
    "SandboxProcess",
    "SandboxSpec",
]
