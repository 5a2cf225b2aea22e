"""The system call filter of all fences; bwrap installs it or, in a container, the guest."""

from ringfence.sandbox.seccomp.compiler import explain, filter_bytes, this_machine
from ringfence.sandbox.seccomp.rules import RULES, Rule

__all__ = ["RULES", "Rule", "explain", "filter_bytes", "this_machine"]
