"""The system call filter of the bubblewrap fence, for `bwrap --add-seccomp-fd`."""

from ringfence.sandbox.seccomp.compile import explain, filter_bytes, this_machine
from ringfence.sandbox.seccomp.rules import RULES, Rule

__all__ = ["RULES", "Rule", "explain", "filter_bytes", "this_machine"]
