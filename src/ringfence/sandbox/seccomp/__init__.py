"""The system call filter of a fence."""

from ringfence.sandbox.seccomp.compiler import explain, filter_bytes, this_machine
from ringfence.sandbox.seccomp.rules import RULES, Rule

__all__ = ["RULES", "Rule", "explain", "filter_bytes", "this_machine"]
